"""One engine in a process of its own, seen from the sweep.

The child leads a session of its own, so that a signal meant for the terminal does not reach it and
so that everything it starts dies with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from harness.core.nouns import Trial, TrialRecord
from harness.core.processes.piped import start_child
from harness.measure.load_loop import LoadProgress
from harness.measure.machine.meters import oom_kills
from harness.measure.messages import NoResult, Phase, Ready, TrialJob
from harness.measure.timed_window import ALARM_GRACE_S
from harness.measure.versions.version import CodeVersion

KILL_GRACE_S = 5.0
"""How much longer than its limit a phase may take before the process is killed: the load loop stops
itself, within `ALARM_GRACE_S` even when a backend call hangs, and keeps the partial generations."""
CLOSE_GRACE_S = 20.0
"""For an engine to free its device when asked to."""
TICK_S = 0.2
LOG_LINES = 5
LOG_CHARACTERS = 600

Listener = Callable[[Phase | LoadProgress], None]
"""Told the name of each phase as it begins, and the progress of the load."""


class EngineProcess:
    """Started when made; `start` waits for the engine. Not reusable after `kill` or `close`."""

    ready: Ready | None = None
    _dismissed = False

    def __init__(self, log: Path | None, version: CodeVersion | None = None) -> None:
        """`version`: the code that the engine is of; None: the one that runs here."""
        self._log = _open_log(log)
        read_end, self._lifeline = os.pipe()
        self._oom_kills = oom_kills()
        self._log_begin = self._log.seek(0, os.SEEK_END)
        code: dict[str, Any] = {}
        if version is not None:
            code = {"python": version.python, "path": version.path, "env": version.variables()}
        self._process, self._channel = start_child(
            "harness.measure.child",
            [read_end],
            [os.getpid()],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            **code,
        )
        os.close(read_end)

    @property
    def pid(self) -> int:
        """The child's process id; also the id of its group."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def start(
        self,
        open_session: Callable[[Trial], Any],
        trial: Trial,
        limit_s: float | None,
        listener: Listener,
    ) -> Ready | NoResult:
        """Have the engine loaded for `trial`."""
        listener("loading")
        answer = self._ask((open_session, trial), limit_s, listener, "loading")
        if isinstance(answer, Ready):
            self.ready = answer
        return cast(Ready | NoResult, answer)

    def run(self, job: TrialJob, listener: Listener) -> TrialRecord | NoResult:
        """Have one trial run. After anything but a record with status "ok", `kill` the engine."""
        self._oom_kills = oom_kills()
        self._log_begin = self._log.seek(0, os.SEEK_END)
        answer = self._ask(job, job.time_limit_s, listener, "preparing")
        return cast(TrialRecord | NoResult, answer)

    def dismiss(self) -> None:
        """Ask the engine to free its device and end, which `close` waits for."""
        if not self._dismissed:
            self._dismissed = True
            with contextlib.suppress(OSError):
                self._channel.send(None)

    def close(self) -> None:
        """Let the engine free its device and end; kill it when it does not."""
        self.dismiss()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_GRACE_S)
        self.kill()

    def kill(self) -> None:
        """End the process and everything it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()
        os.close(self._lifeline)
        self._log.close()

    def _ask(self, question: Any, limit_s: float | None, listener: Listener, phase: Phase) -> Any:
        """Send, then listen until the answer, the end of the process or of a phase's time."""
        deadline = _deadline(limit_s)
        try:
            self._channel.send(question)
            while True:
                if not self._channel.poll(TICK_S):
                    if not self.is_alive() and not self._channel.poll(0):
                        return self._autopsy(phase)
                    if time.monotonic() > deadline:
                        return NoResult("timeout", f"'{phase}' was not over within {limit_s:g} s")
                    continue
                message = self._channel.recv()
                if not isinstance(message, str | LoadProgress):
                    return message
                if isinstance(message, str):
                    phase, deadline = cast(Phase, message), _deadline(limit_s)
                listener(cast(Phase | LoadProgress, message))
        except (EOFError, ConnectionError):
            return self._autopsy(phase)

    def _autopsy(self, phase: str) -> NoResult:
        """Why the process is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_GRACE_S)
        code = self._process.poll()
        tail = self._log_tail()
        if code is None:
            return NoResult("failed", f"closed its pipe during '{phase}' and lives on{tail}")
        if code == -signal.SIGKILL and oom_kills() > self._oom_kills:
            error = f"killed by the kernel for memory during '{phase}'"
            return NoResult("out_of_memory", error, killed=True)
        if code < 0:
            error = f"killed by {_signal_name(-code)} during '{phase}'{tail}"
            return NoResult("failed", error, killed=code == -signal.SIGKILL)
        return NoResult("failed", f"exited with code {code} during '{phase}'{tail}")

    def _log_tail(self) -> str:
        """The last lines that the child wrote during this job, as the end of an error line."""
        self._log.seek(self._log_begin)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines()]
        tail = " / ".join([line for line in lines if line][-LOG_LINES:])[-LOG_CHARACTERS:]
        return f"; it wrote last: {tail}" if tail else ""


def _open_log(path: Path | None) -> IO[bytes]:
    return tempfile.TemporaryFile() if path is None else path.open("a+b")


def _deadline(limit_s: float | None) -> float:
    if limit_s is None:
        return float("inf")
    return time.monotonic() + limit_s + ALARM_GRACE_S + KILL_GRACE_S


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
