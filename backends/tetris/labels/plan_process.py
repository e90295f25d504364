"""A process that makes plans: forecasts of survival take seconds, and a thread would take them from
the process that hands out batches."""

from __future__ import annotations

import contextlib
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.simulation.planning_ahead import Seen
from backends.tetris.workers.piped_stages import PipedStages, StageDiedError
from backends.tetris.workers.places import ProcessPlace

NICE = 19
"""The workers go first."""
WITHIN_S = 300.0
"""Takes a plan, of a process that does not hang."""


class ProcessMaker:
    """As `backends.tetris.simulation.planning_ahead.PlanMaker`, in a process of its own; where that
    dies, or hangs for `within_s`, the present plan stays, and another process is started beside
    what is served. Where that one does not come up no plan is made any more."""

    def __init__(self, backend: str, within_s: float = WITHIN_S) -> None:
        self._process: PipedStages[None, Any, Any] = PipedStages(
            backend, ProcessPlace(__name__), [None], within_s, ["the planner"]
        )
        self._asked: tuple[WindowPlanner, Seen] | None = None
        self._opening = self._lost = False

    def begin(self, planner: WindowPlanner, seen: Seen) -> None:
        """As the protocol says."""
        self._asked = planner, seen
        if not self._opening and not self._lost:
            self._process.send(0, self._asked)

    def done(self) -> bool:
        """As the protocol says."""
        return not self.starting() and (self._lost or bool(self._process.ready([0], 0.0)))

    def starting(self) -> bool:
        """Whether the process is not there yet, after a plan was dropped or one before it died."""
        if self._opening and self._process.ready([0], 0.0):
            self._opened()
        return self._opening

    def take(self) -> tuple[bool, WindowPlanner]:
        """As the protocol says."""
        assert self._asked is not None
        planner, _ = self._asked
        if self._opening:
            self._opened()
        if self._lost:
            return False, planner
        try:
            changed, planner = self._process.receive(0)
        except StageDiedError:
            self._start_anew()
            return False, planner
        return changed, planner

    def drop(self) -> None:
        """As the protocol says."""
        if not self._opening and not self._lost:
            self._start_anew()
        self._asked = None

    def _start_anew(self) -> None:
        self._process.start_anew(0)
        self._opening = True

    def _opened(self) -> None:
        """Wait until the new process is there, and give it what was asked meanwhile."""
        self._opening = False
        try:
            self._process.opened(0)
        except StageDiedError:
            self._lost = True
            return
        if self._asked is not None:
            self._process.send(0, self._asked)

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
