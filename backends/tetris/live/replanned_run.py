"""A live pipeline whose plan follows its workload, by the rules of the simulator."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
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
from backends.tetris.simulation.planning_ahead import PlanningAhead
from backends.tetris.survival import WINDOW_S

if TYPE_CHECKING:
    from backends.tetris.live.pipeline_driver import LivePipeline


class ReplannedLiveRun(LiveRun):
    """As its base, with the plan of `ChangingPlan`, made ahead. Devices' times are what they say
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
        self._ahead = PlanningAhead(self.changing, 1e3 * window_s)
        super().__init__(live, self.changing.layout, decisions, arrivals, slow)

    def served(self) -> Served:
        """As its base."""
        with contextlib.closing(self._ahead):
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
        return [*soon, self._ahead.coming_ms(self.now())]

    def between(self) -> None:
        """At a window's end a plan is made. Once it is there and the old stages are empty, the new
        ones begin."""
        self._ahead.between(self.now(), self.changing.window)
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
