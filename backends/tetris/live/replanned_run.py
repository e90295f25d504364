"""A live pipeline whose plan follows its workload, by the rules of the simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from backends.tetris.live.live_run import LiveRun
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stragglers import Slowdown
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.simulation.changing import ChangingPlan
from backends.tetris.simulation.events import Served
from backends.tetris.simulation.lanes import Lane
from backends.tetris.survival import WINDOW_S

if TYPE_CHECKING:
    from backends.tetris.live.pipeline_driver import LivePipeline

PLANNED_MS = 20.0
"""How long the driver waits at most, while a plan is made, to ask whether it is there."""


class ReplannedLiveRun(LiveRun):
    """As its base, with the plan of `ChangingPlan`. Plans are made beside the run, in a thread: the
    next window begins when the one before has its plan. Devices' times are what they say
    themselves, so that a late driver makes no straggler."""

    def __init__(
        self,
        live: LivePipeline,
        planner: WindowPlanner,
        decisions: LeaveDecisions,
        arrivals: Sequence[float] | NDArray[np.float64] | int,
        slow: Mapping[str, Slowdown] | None = None,
        window_s: float = WINDOW_S,
    ) -> None:
        self.changing, self._decisions = ChangingPlan(planner), decisions
        self._window_ms = self._window_end_ms = 1e3 * window_s
        self._thread = ThreadPoolExecutor(1)
        self._planned: Future[bool] | None = None
        super().__init__(live, self.changing.layout, decisions, arrivals, slow)

    def served(self) -> Served:
        """As its base."""
        with self._thread:
            return super().served()

    def may_start(self, lane: Lane) -> bool:
        """The entrance is shut while the old stages empty, and those wait for nobody then."""
        return self.changing.may_start(lane, self.now())

    def ran(self, device: str, took_ms: float, expected_ms: float) -> None:
        """The batch's time, for the device's average."""
        self.changing.ran(device, took_ms, expected_ms)

    def coming(self) -> list[float]:
        """As its base; who waits at a shut entrance is not due."""
        soon = super().coming()
        if self.changing.shut:
            soon = [self.moving[0][0]] if self.moving else []
        elif self._planned is None:
            soon.append(self._window_end_ms)
        return soon + ([] if self._planned is None else [self.now() + PLANNED_MS])

    def between(self) -> None:
        """At a window's end: what it showed goes to the planner. Once its plan is there and the old
        stages are empty, the new ones begin."""
        if self._planned is not None:
            if self._planned.done():
                self.changing.shut = self._planned.result()
                self._planned = None
                self._window_end_ms = self.now() + self._window_ms
        elif not self.changing.shut and self.now() >= self._window_end_ms:
            seen = self.changing.window()
            self._planned = self._thread.submit(self.changing.planner.next_plan, *seen)
        if self.changing.shut and self._empty():
            self._change()

    def _empty(self) -> bool:
        inside = any(what.requests is not None for what in self.calls.values())
        behind = any(len(lane.queue) for lane in self.layout.lanes[1:])
        return not (inside or behind or self.moving)

    def _change(self) -> None:
        waiting = self.changing.change(self.now())
        self.take_up(self.changing.layout)
        # a batch that ran again may have come behind others: nobody before the first has no answer
        first = min(waiting, default=self.next)
        self.deep[first:] = self._decisions.rest(first).depths(self.layout.cuts).tolist()
        if waiting:
            self.join(self.layout.entrance, waiting)
