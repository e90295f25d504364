"""A pipeline whose plan follows its workload: stages change at the ends of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import BatchClocks
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.lanes import Crew, Lane
from backends.tetris.simulation.layouts import pipeline
from backends.tetris.survival import WINDOW_S


class ReplanningSimulation(LaneSimulation):
    """As its base. For a new plan the entrance is shut until the old stages are empty; who waits at
    it then enters the new ones, so that nobody runs a layer twice. `plans` has (ms, plan)."""

    def __init__(
        self,
        planner: WindowPlanner,
        decisions: LeaveDecisions,
        arrivals: Sequence[float] | NDArray[np.float64] | int,
        limit_ms: float,
        slow: Mapping[str, float] | None = None,
        window_s: float = WINDOW_S,
    ) -> None:
        times = StageTimes(planner.profile)
        super().__init__(pipeline(times, planner.plan), times, decisions, arrivals, limit_ms, slow)
        self._planner, self._window_ms = planner, 1e3 * window_s
        self._clocks, self._stragglers = BatchClocks(), set[str]()
        self._changing = False
        self.plans = [(0.0, planner.plan)]
        self.at(self._window_ms, self._window_over)

    @property
    def stragglers(self) -> frozenset[str]:
        """Devices found so far."""
        return frozenset(self._stragglers)

    def started(
        self, device: str, took_ms: float, lane: Lane, crew: Crew, requests: list[int]
    ) -> None:
        """The batch's time, for the device's average."""
        expected_ms, _ = lane.work(crew.kind, requests, [self.depth[one] for one in requests])
        self._clocks.add(device, took_ms, expected_ms)

    def may_start(self, lane: Lane) -> bool:
        """The entrance is shut while the old stages empty, and those wait for nobody then."""
        if not self._changing:
            return super().may_start(lane)
        return lane is not self.layout.entrance and len(lane.queue) > 0

    def _window_over(self, _: Any) -> None:
        self.at(self.now_ms + self._window_ms, self._window_over)
        self._stragglers |= self._clocks.stragglers(self.layout.stage_of())
        if self._planner.next_plan(self._seen(), self._stragglers):
            self._changing = True
            for lane in self.layout.lanes:
                self.serve(lane)
            self._change_when_empty()

    def _seen(self) -> dict[int, float]:
        """Share alive behind each cut of this window, up to the last one that somebody came to."""
        alive, share = {}, 1.0
        for lane in self.layout.lanes[:-1]:
            count = lane.left + lane.passed
            if not count:
                break
            share *= lane.passed / count
            alive[lane.end] = share
        for lane in self.layout.lanes:
            lane.left = lane.passed = 0
        return alive

    def _finish(self, what: Any) -> None:
        super()._finish(what)
        self._change_when_empty()

    def _change_when_empty(self) -> None:
        if not self._changing or self.inside:
            return
        self._changing = False
        waiting = self.layout.entrance.queue.remove_all()
        self.times = StageTimes(self._planner.profile)
        self.layout = pipeline(self.times, self._planner.plan, self._planner.left_out)
        # who waits at the entrance came last, and everybody before has an answer
        answered = self.asked - len(waiting)
        self.depth[answered:] = self.decisions.rest(answered).depths(self.layout.cuts).tolist()
        self.plans.append((self.now_ms, self._planner.plan))
        if waiting:
            self.join(self.layout.entrance, waiting)
