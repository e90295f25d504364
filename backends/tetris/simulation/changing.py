"""What changes a plan at the ends of windows, for the simulator and for pipelines that run."""

from __future__ import annotations

from collections.abc import Mapping

from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import BatchClocks
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.simulation.lanes import Lane
from backends.tetris.simulation.layouts import pipeline


class ChangingPlan:
    """The present stages (`layout`), and what a window shows of them. For a new plan the entrance
    is `shut` until the old stages are empty, and those wait for nobody meanwhile; who waits at it
    then enters the new ones, so that nobody runs a layer twice. `plans` has (ms, plan)."""

    def __init__(self, planner: WindowPlanner) -> None:
        self.planner, self.shut = planner, False
        self.times = StageTimes(planner.profile)
        self.layout = pipeline(self.times, planner.plan, planner.left_out)
        self.plans = [(0.0, planner.plan)]
        self._clocks, self._stragglers = BatchClocks(), set[str]()

    @property
    def stragglers(self) -> frozenset[str]:
        """Devices found so far."""
        return frozenset(self._stragglers)

    def ran(self, device: str, took_ms: float, expected_ms: float) -> None:
        """A batch's time, for its device's average."""
        self._clocks.add(device, took_ms, expected_ms)

    def window(self) -> tuple[dict[int, float], frozenset[str]]:
        """What the window that ends here has shown, as `WindowPlanner.next_plan` takes it: the
        share alive behind each cut, up to the last one that somebody came to, and stragglers."""
        slow = self.find_stragglers(self.layout.stage_of())
        alive, share = {}, 1.0
        for lane in self.layout.lanes[:-1]:
            count = lane.left + lane.passed
            if not count:
                break
            share *= lane.passed / count
            alive[lane.end] = share
        for lane in self.layout.lanes:
            lane.left = lane.passed = 0
        return alive, slow

    def find_stragglers(self, stage_of: Mapping[str, int], *, alone: bool = True) -> frozenset[str]:
        """Those of before and of now; devices of equal `stage_of` are compared, one that is `alone`
        with the profile or with nobody."""
        self._stragglers |= self._clocks.stragglers(stage_of, alone=alone)
        return self.stragglers

    def may_start(self, lane: Lane, now_ms: float) -> bool:
        """Whether a lane's queue gives a batch now."""
        if not self.shut:
            return lane.queue.ready(now_ms)
        return lane is not self.layout.entrance and len(lane.queue) > 0

    def change(self, now_ms: float) -> list[int]:
        """The planner's new stages in place of the old ones, which are empty; who waits at the
        entrance, in order."""
        self.shut = False
        waiting = self.layout.entrance.queue.remove_all()
        self.times = StageTimes(self.planner.profile)
        self.layout = pipeline(self.times, self.planner.plan, self.planner.left_out)
        self.plans.append((now_ms, self.planner.plan))
        return waiting
