"""The plans of a pipeline that serves: made anew at the ends of windows, by the simulator's rules.

All ramps are asked, so that each answer says behind which of them its input was sure first. That is
survival with all ramps on, whatever the stages, and the label does not depend on them.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence

from backends.classifiers.flight import InputInFlight
from backends.tetris.labels.costs import KIND
from backends.tetris.labels.jobs import LabelJob
from backends.tetris.labels.stages import StageSpan
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.planner import PlannedStage, StagePlan
from backends.tetris.simulation.changing import ChangingPlan
from backends.tetris.simulation.planning_ahead import PlanMaker, PlanningAhead

LEAST_INPUTS = 32
"""Answered in a window; it goes on until then, since fewer say little of survival."""
WARM_UP = 2
"""Batches of a process that was started anew, which are slow by themselves."""
BLOCKS, BLOCK_BATCHES = 20, 10
"""Of a window, and in one of them at least. A worker's batches are added up over one before they
enter its average: a batch takes milliseconds, and the rule would remember the last few alone."""
FIRST_BLOCKS = 3
"""Of a stage, in which is found how its batches compare with what was measured: who comes to a late
stage is no input like any other. From then on it is held against that."""


def plan_of(stages: Sequence[StageSpan], batch: int) -> StagePlan:
    """Stages that nobody planned, of which nothing is known but where they are."""
    made = tuple(
        PlannedStage(one.first, one.end, KIND, len(one.workers), 0.0, 1.0) for one in stages
    )
    workers = sum(one.count for one in made)
    return StagePlan(made, batch, 0.0, 0.0, float(workers), 0.0)


class ServedPlans:
    """Windows, what they show, and the stages that follow from it. Times are milliseconds of one
    clock.

    Args:
        planner: makes the planner of a trial, with the stages that it begins with.
        ramps: layers behind which a ramp stands.
        window_s: at least; see `LEAST_INPUTS`.
        maker: of the plans.
    """

    def __init__(
        self,
        planner: Callable[[], WindowPlanner],
        ramps: Sequence[int],
        window_s: float,
        maker: PlanMaker,
    ) -> None:
        self._maker = maker
        self._planner, self._ramps, self._window_ms = planner, ramps, 1e3 * window_s
        self._ahead: PlanningAhead | None = None
        self.start_over()

    @property
    def shut(self) -> bool:
        """Whether the entrance is, because there is another plan."""
        return self.changing.shut

    def start_over(self) -> list[StageSpan]:
        """Know nothing of before; the stages of the beginning."""
        self.close()
        self._ahead = None
        self.changing = ChangingPlan(self._planner())
        self._begin_ms = self._windows = self._answered = 0.0
        self._sure: Counter[int] = Counter()
        self._cold: Counter[int] = Counter()
        self._block: dict[tuple[int, tuple[int, int]], tuple[int, float, float]] = {}
        self._usual: dict[tuple[int, int], list[float]] = {}
        self._sums: dict[str, float] = {}
        self._tell_plan(0.0)
        return self._stages()

    def begin(self, now_ms: float) -> None:
        """The first input of a trial comes, and with it the first window."""
        self._begin_ms = now_ms
        self._ahead = PlanningAhead(self.changing, self._window_ms, now_ms, self._maker)

    def close(self) -> None:
        """Drop a plan that is being made."""
        if self._ahead is not None:
            self._ahead.close()

    def saw(self, done: Sequence[InputInFlight]) -> None:
        """Inputs that are answered."""
        self._answered += len(done)
        self._sure.update(one.memory.sure_after for one in done if one.memory.sure_after)

    def ran(self, worker: int, job: LabelJob) -> None:
        """A batch, for its worker's average."""
        if self._cold[worker]:
            self._cold[worker] -= 1
            return
        expected_ms = self.changing.times.stage_ms(KIND, *job.span, len(job.inputs))
        place = worker, job.span
        batches, took, expected = self._block.get(place, (0, 0.0, 0.0))
        batches, took, expected = batches + 1, took + job.busy_us / 1e3, expected + expected_ms
        if batches < BLOCK_BATCHES or took < self._window_ms / BLOCKS:
            self._block[place] = batches, took, expected
            return
        self._block.pop(place, None)
        first = self._usual.setdefault(job.span, [])
        if len(first) < FIRST_BLOCKS:
            first.append(took / expected)
        else:
            self.changing.ran(_name(worker), took, expected * statistics.median(first))

    def replaced(self, worker: int) -> None:
        """Another process begins in a worker's place."""
        self._cold[worker] = WARM_UP

    def between(self, now_ms: float) -> None:
        """At a window's end a plan is made; `shut` once it is there, and another one."""
        if self._ahead is not None and not self._lacks(now_ms):
            self._ahead.between(now_ms, self._window)

    def coming_ms(self, now_ms: float) -> float:
        """When `between` has something to do next."""
        if self._ahead is None or self._lacks(now_ms):
            return math.inf
        return self._ahead.coming_ms(now_ms)

    def change(self, now_ms: float) -> list[StageSpan]:
        """The stages of the new plan; the old ones are empty."""
        self.changing.change(now_ms)
        self._tell_plan(now_ms - self._begin_ms)
        return self._stages()

    def counts(self) -> dict[str, float]:
        """What was planned and seen since this was last asked (`results.metrics.plans`)."""
        found, self._sums = self._sums, {}
        return found

    def _lacks(self, now_ms: float) -> bool:
        """Whether a window is over that has seen too few."""
        assert self._ahead is not None
        over = not self._ahead.planning and self._ahead.coming_ms(now_ms) <= now_ms
        return over and self._answered < LEAST_INPUTS

    def _window(self) -> tuple[dict[int, float], frozenset[str]]:
        alive, left = {}, self._answered
        self._windows += 1
        window = f"{self._windows:.0f}"
        self._sums[f"window_inputs_{window}"] = self._answered
        for ramp in self._ramps:
            left -= self._sure[ramp]
            alive[ramp] = left / self._answered
            self._sums[f"window_alive_{window}_{ramp}"] = left
            if self._windows > 1:
                expected = self.changing.planner.profile.survival[ramp]
                self._sums[f"window_forecast_{window}_{ramp}"] = expected
        self._answered = 0.0
        self._sure.clear()
        # other stages are given what changes otherwise than a lone worker's inputs do, and a slow
        # worker is better than none
        slow = self.changing.find_stragglers(self.changing.layout.stage_of(), alone=False)
        return alive, slow

    def _stages(self) -> list[StageSpan]:
        made = zip(self.changing.planner.plan.stages, self.changing.layout.crews, strict=True)
        return [
            StageSpan(one.first, one.end, tuple(sorted(map(_number, crew.devices))))
            for one, crew in made
        ]

    def _tell_plan(self, at_ms: float) -> None:
        plan = f"{len(self.changing.plans)}"
        self._sums[f"plan_at_ms_{plan}"] = at_ms
        self._sums[f"plan_left_out_{plan}"] = float(len(self.changing.planner.left_out))
        for one in self.changing.planner.plan.stages:
            self._sums[f"plan_workers_{plan}_{one.end}"] = float(one.count)


def _name(worker: int) -> str:
    return f"{KIND}-{worker}"


def _number(device: str) -> int:
    return int(device.rpartition("-")[2])
