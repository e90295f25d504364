"""A pipeline whose plan follows its workload: stages change at the ends of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stragglers import Slowdown
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.simulation.changing import ChangingPlan
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.lanes import Crew, Lane
from backends.tetris.survival import WINDOW_S


class ReplanningSimulation(LaneSimulation):
    """As its base, with the plan of `ChangingPlan`. Planning takes no time."""

    def __init__(
        self,
        planner: WindowPlanner,
        decisions: LeaveDecisions,
        arrivals: Sequence[float] | NDArray[np.float64] | int,
        limit_ms: float,
        slow: Mapping[str, Slowdown] | None = None,
        window_s: float = WINDOW_S,
    ) -> None:
        self.changing, self._window_ms = ChangingPlan(planner), 1e3 * window_s
        stages, times = self.changing.layout, self.changing.times
        super().__init__(stages, times, decisions, arrivals, limit_ms, slow)
        self.at(self._window_ms, self._window_over)

    def started(
        self, device: str, took_ms: float, lane: Lane, crew: Crew, requests: list[int]
    ) -> None:
        """The batch's time, for the device's average."""
        expected_ms, _ = lane.work(crew.kind, requests, [self.depth[one] for one in requests])
        self.changing.ran(device, took_ms, expected_ms)

    def may_start(self, lane: Lane) -> bool:
        """The entrance is shut while the old stages empty, and those wait for nobody then."""
        return self.changing.may_start(lane, self.now_ms)

    def _window_over(self, _: Any) -> None:
        self.at(self.now_ms + self._window_ms, self._window_over)
        if self.changing.planner.next_plan(*self.changing.window()):
            self.changing.shut = True
            for lane in self.layout.lanes:
                self.serve(lane)
            self._change_when_empty()

    def _finish(self, what: Any) -> None:
        super()._finish(what)
        self._change_when_empty()

    def _change_when_empty(self) -> None:
        if not self.changing.shut or self.inside:
            return
        waiting = self.changing.change(self.now_ms)
        self.times, self.layout = self.changing.times, self.changing.layout
        # who waits at the entrance came last, and everybody before has an answer
        answered = self.asked - len(waiting)
        self.depth[answered:] = self.decisions.rest(answered).depths(self.layout.cuts).tolist()
        if waiting:
            self.join(self.layout.entrance, waiting)
