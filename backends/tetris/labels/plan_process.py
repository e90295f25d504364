"""A process that makes plans: forecasts of survival take seconds, and a thread would take them from
the process that hands out batches."""

from __future__ import annotations

import contextlib
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

from backends.tetris.piped_stages import PipedStages, StageDiedError
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.simulation.planning_ahead import Seen

NICE = 19
"""The workers go first."""


class ProcessMaker:
    """As `backends.tetris.simulation.planning_ahead.PlanMaker`, in a process of its own; where that
    dies the present plan stays, and another process is started."""

    def __init__(self, backend: str) -> None:
        self._process: PipedStages[None, Any, Any] = PipedStages(backend, __name__, [None])
        self._planner: WindowPlanner | None = None

    def begin(self, planner: WindowPlanner, seen: Seen) -> None:
        """As the protocol says."""
        self._planner = planner
        self._process.send(0, (planner, seen))

    def done(self) -> bool:
        """As the protocol says."""
        return bool(self._process.ready([0], 0.0))

    def take(self) -> tuple[bool, WindowPlanner]:
        """As the protocol says."""
        assert self._planner is not None
        try:
            changed, planner = self._process.receive(0)
        except StageDiedError:
            self._process.restart(0)
            return False, self._planner
        return changed, planner

    def pid(self) -> int:
        """Of the process."""
        return self._process.pids()[0]

    def close(self) -> None:
        """End it."""
        self._process.close()


def main(descriptor: int) -> None:
    """Talk through this file descriptor: nothing to open, and then planners with what was seen."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    with contextlib.suppress(EOFError, OSError), Connection(descriptor) as channel:
        channel.recv()
        channel.send(None)
        while True:
            planner, seen = channel.recv()
            channel.send((planner.next_plan(*seen), planner))
