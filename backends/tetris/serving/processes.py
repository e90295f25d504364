"""The stages' processes: started, listened to, replaced when one dies."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Collection
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait

from backends.engine.model.architecture import Architecture
from backends.tetris.serving import stage
from backends.tetris.serving.cut_plan import NAME
from backends.tetris.serving.jobs import SharedStates, StageDone, StageJob, StageSetup
from harness.core.errors import UserError

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    f"from {stage.__name__} import main; main(*map(int, sys.argv[1:]))"
)
PATIENCE_S = 10.0
"""For a process to end."""


class StageDiedError(RuntimeError):
    """The process of a stage is gone."""

    def __init__(self, index: int, code: int | None) -> None:
        super().__init__(f"backend '{NAME}': the process of stage {index} ended with code {code}")
        self.index = index


class StageProcesses:
    """One process for each stage; to `EngineBackend` they are an executor.

    Args:
        setup: of the first stage; those of the others differ in their number alone.
        architecture: the whole model's.

    Raises:
        UserError: for what a stage cannot take.
        StageDiedError: when a process ends while it opens its layers.
    """

    trees = None

    def __init__(self, setup: StageSetup, architecture: Architecture) -> None:
        self.architecture = architecture
        self.max_len: int = setup.options["max_model_len"]
        self.count = setup.states.stages
        self.states = SharedStates(setup.states)
        self._setup = setup
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._channels: dict[int, Connection] = {}
        try:
            for index in range(self.count):
                self._start(index)
            for index in range(self.count):
                self._opened(index)
        except BaseException:
            self.close()
            raise

    def send(self, index: int, job: StageJob) -> None:
        """Give a stage its next job; its last one has been answered. Raises `StageDiedError`."""
        try:
            self._channels[index].send(job)
        except OSError:
            raise self._death(index) from None

    def receive(self, index: int) -> StageDone:
        """A stage's answer. Raises `StageDiedError`."""
        try:
            found: StageDone = self._channels[index].recv()
            return found
        except (EOFError, OSError):
            raise self._death(index) from None

    def ready(self, busy: Collection[int]) -> list[int]:
        """Wait until one of the busy stages has answered, or died: those that have."""
        by_channel = {self._channels[index]: index for index in busy}
        return sorted(by_channel[channel] for channel in wait(list(by_channel)))  # type: ignore[index]

    def restart(self, index: int) -> None:
        """End a stage's process, whatever it does, and start another one in its place. Raises
        `StageDiedError` when that does not come up."""
        self._end(index, at_once=True)
        self._start(index)
        self._opened(index)

    def pids(self) -> list[int]:
        """Of the processes, in order."""
        return [self._processes[index].pid for index in range(self.count)]

    def close(self) -> None:
        """End all processes."""
        for channel in self._channels.values():
            channel.close()
        for index in list(self._processes):
            self._end(index)
        self.states.close()

    def _start(self, index: int) -> None:
        ours, theirs = Pipe()
        numbers = theirs.fileno(), self.states.number
        command = [sys.executable, "-c", BOOT, *map(str, numbers), json.dumps(sys.path)]
        self._channels[index] = ours
        self._processes[index] = subprocess.Popen(
            command,
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        with contextlib.suppress(OSError):
            ours.send(replace(self._setup, index=index))

    def _opened(self, index: int) -> None:
        try:
            refused = self._channels[index].recv()
        except (EOFError, OSError):
            raise self._death(index) from None
        if refused is not None:
            raise UserError(refused)

    def _death(self, index: int) -> StageDiedError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._processes[index].wait(PATIENCE_S)
        return StageDiedError(index, self._processes[index].poll())

    def _end(self, index: int, at_once: bool = False) -> None:
        self._channels.pop(index).close()
        process = self._processes.pop(index)
        if not at_once:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
                return
        process.kill()
        process.wait()
