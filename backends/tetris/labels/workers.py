"""The stages' processes: started, listened to, replaced when one dies."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from multiprocessing.connection import Connection, Pipe, wait

from backends.tetris.labels import worker
from backends.tetris.labels.jobs import LabelJob, LabelStageSetup
from harness.core.errors import UserError

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    f"from {worker.__name__} import main; main(*map(int, sys.argv[1:]))"
)
PATIENCE_S = 10.0
"""For a process to end."""


class WorkerDiedError(RuntimeError):
    """The process of a stage is gone."""


class LabelWorkers:
    """One process for each stage.

    Args:
        setups: of the stages, in order.

    Raises:
        UserError: for weights that do not fit.
        WorkerDiedError: when a process ends while it opens its layers.
    """

    def __init__(self, setups: Sequence[LabelStageSetup]) -> None:
        self._setups = setups
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._channels: dict[int, Connection] = {}
        try:
            for index in range(len(setups)):
                self._start(index)
            for index in range(len(setups)):
                self._opened(index)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._setups)

    def send(self, index: int, job: LabelJob) -> None:
        """Give an idle stage a batch; one that is dead will say so in `receive`."""
        with contextlib.suppress(OSError):
            self._channels[index].send(job)

    def receive(self, index: int) -> LabelJob:
        """A stage's answer. Raises `WorkerDiedError`."""
        try:
            found: LabelJob = self._channels[index].recv()
            return found
        except (EOFError, OSError):
            raise WorkerDiedError(f"the process of stage {index + 1} ended") from None

    def ready(self, busy: Collection[int], timeout_s: float) -> list[int]:
        """The busy stages that have answered or died, after at most so long."""
        by_channel = {self._channels[index]: index for index in busy}
        found = wait(list(by_channel), timeout_s)
        return sorted(by_channel[channel] for channel in found)  # type: ignore[index]

    def restart(self, index: int) -> None:
        """End a stage's process, whatever it does, and start another one in its place. Raises
        `WorkerDiedError` when that does not come up."""
        self._end(index, at_once=True)
        self._start(index)
        self._opened(index)

    def pids(self) -> list[int]:
        """Of the processes, in order."""
        return [self._processes[index].pid for index in range(len(self._setups))]

    def close(self) -> None:
        """End all processes."""
        for channel in self._channels.values():
            channel.close()
        for index in list(self._processes):
            self._end(index)

    def _start(self, index: int) -> None:
        ours, theirs = Pipe()
        number = theirs.fileno()
        command = [sys.executable, "-c", BOOT, str(number), json.dumps(sys.path)]
        self._channels[index] = ours
        self._processes[index] = subprocess.Popen(
            command, pass_fds=[number], stdin=subprocess.DEVNULL
        )
        theirs.close()
        with contextlib.suppress(OSError):
            ours.send(self._setups[index])

    def _opened(self, index: int) -> None:
        try:
            refused = self._channels[index].recv()
        except (EOFError, OSError):
            raise WorkerDiedError(f"the process of stage {index + 1} did not start") from None
        if refused is not None:
            raise UserError(refused)

    def _end(self, index: int, at_once: bool = False) -> None:
        self._channels.pop(index).close()
        process = self._processes.pop(index)
        if not at_once:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
                return
        process.kill()
        process.wait()
