"""Plans that are made beside a pipeline, while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from backends.tetris.simulation.changing import ChangingPlan

PLANNED_MS = 20.0
"""How long to wait at most, while a plan is made, before asking whether it is there."""

Window = Callable[[], tuple[Mapping[int, float], Collection[str]]]
"""What a window that ends has shown, as `WindowPlanner.next_plan` takes it."""


class PlanningAhead:
    """The windows of a `ChangingPlan`, in milliseconds of one clock. Plans are made in a thread:
    the next window begins when the one before has its plan."""

    def __init__(self, changing: ChangingPlan, window_ms: float, begin_ms: float = 0.0) -> None:
        self._changing, self._window_ms = changing, window_ms
        self._end_ms = begin_ms + window_ms
        self._thread = ThreadPoolExecutor(1)
        self._planned: Future[bool] | None = None

    @property
    def planning(self) -> bool:
        """Whether a plan is being made."""
        return self._planned is not None

    def close(self) -> None:
        """Wait for a plan that is being made."""
        self._thread.shutdown()

    def between(self, now_ms: float, window: Window) -> None:
        """At a window's end: what it showed goes to the planner. Once its plan is there, and is
        another one, the entrance is shut."""
        if self._planned is not None:
            if self._planned.done():
                self._changing.shut = self._planned.result()
                self._planned = None
                self._end_ms = now_ms + self._window_ms
        elif not self._changing.shut and now_ms >= self._end_ms:
            self._planned = self._thread.submit(self._changing.planner.next_plan, *window())

    def coming_ms(self, now_ms: float) -> float:
        """When `between` has something to do next."""
        if self._planned is not None:
            return now_ms + PLANNED_MS
        return math.inf if self._changing.shut else self._end_ms
