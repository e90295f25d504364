"""Plans that are made beside a pipeline, while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.simulation.changing import ChangingPlan

PLANNED_MS = 20.0
"""How long to wait at most, while a plan is made, before asking whether it is there."""

Seen = tuple[Mapping[int, float], Collection[str]]
"""What a window has shown, as `WindowPlanner.next_plan` takes it."""


class PlanMaker(Protocol):
    """Makes one plan at a time, beside whoever asks."""

    def begin(self, planner: WindowPlanner, seen: Seen) -> None:
        """`planner` is left alone until the plan is taken."""

    def done(self) -> bool:
        """Whether the plan that was begun is there."""

    def take(self) -> tuple[bool, WindowPlanner]:
        """Whether it is another plan, and the planner that has it; waits for it."""

    def drop(self) -> None:
        """Nobody wants the plan that was begun."""


class ThreadMaker:
    """In a thread of this process."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._made: Future[tuple[bool, WindowPlanner]] | None = None

    def begin(self, planner: WindowPlanner, seen: Seen) -> None:
        """As the protocol says."""
        self._made = self._thread.submit(lambda: (planner.next_plan(*seen), planner))

    def done(self) -> bool:
        """As the protocol says."""
        return self._made is not None and self._made.done()

    def take(self) -> tuple[bool, WindowPlanner]:
        """As the protocol says."""
        assert self._made is not None
        return self._made.result()

    def drop(self) -> None:
        """Wait for it: a thread cannot be ended."""
        self.take()


class PlanningAhead:
    """The windows of a `ChangingPlan`, in milliseconds of one clock: the next one begins when the
    one before has its plan."""

    def __init__(
        self,
        changing: ChangingPlan,
        window_ms: float,
        begin_ms: float = 0.0,
        maker: PlanMaker | None = None,
    ) -> None:
        self._changing, self._window_ms = changing, window_ms
        self._end_ms = begin_ms + window_ms
        self._maker = maker or ThreadMaker()
        self.planning = False

    def close(self) -> None:
        """Drop a plan that is being made."""
        if self.planning:
            self._maker.drop()
            self.planning = False

    def between(self, now_ms: float, window: Callable[[], Seen]) -> None:
        """At a window's end: what it showed goes to the planner. Once its plan is there, and is
        another one, the entrance is shut."""
        if self.planning:
            if self._maker.done():
                self._changing.shut, self._changing.planner = self._maker.take()
                self.planning = False
                self._end_ms = now_ms + self._window_ms
        elif not self._changing.shut and now_ms >= self._end_ms:
            self._maker.begin(self._changing.planner, window())
            self.planning = True

    def coming_ms(self, now_ms: float) -> float:
        """When `between` has something to do next."""
        if self.planning:
            return now_ms + PLANNED_MS
        return math.inf if self._changing.shut else self._end_ms
