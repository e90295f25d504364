"""TETRIS's planner: stages and their devices, for a batch profile and a latency objective.

After "Fast & Efficient DNN Inference Using Practical Early-Exit Networks", §3.2, as corrected in
`docs/tetris.md`. The answer is the best plan there is, not an approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.tetris.best_first import best, growing
from backends.tetris.device_search import DeviceBound, least_latency, stages_of
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted
from backends.tetris.stage_costs import SAME, Floats, StageCosts, stage_costs
from backends.tetris.useful_stages import UsefulStages
from harness.core.errors import UserError

MET = 1e-9
"""A limit is met by what is above it by no more than this, relatively: sums are rounded."""
DIGITS = 6
ANY_MS = 1e300


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """Layers first..end-1 on `count` devices of one kind. It takes `cycle_ms` for each batch that
    enters the model, of which the share `alive` comes as far as here."""

    first: int
    end: int
    device: str
    count: int
    cycle_ms: float
    alive: float


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Stages in order, and what they give together: requests a second, the longest latency that is
    expected where survivors come evenly (ms; in lumps some wait longer), the price of all devices,
    and the cycle time: milliseconds between batches."""

    stages: tuple[PlannedStage, ...]
    batch: int
    goodput_per_s: float
    latency_ms: float
    cost: float
    cycle_ms: float

    @property
    def cuts(self) -> tuple[int, ...]:
        """Layers behind which a stage ends and another begins."""
        return tuple(one.end for one in self.stages[:-1])

    def to_json(self, seconds: float) -> dict[str, Any]:
        """The answer of `decodebench plan --json`, made in so many seconds."""
        return {
            "goodput_per_s": self.goodput_per_s,
            "latency_ms": self.latency_ms,
            "cost": self.cost,
            "batch": self.batch,
            "stages": self.stages_json(),
            "seconds": seconds,
        }

    def stages_json(self) -> list[dict[str, Any]]:
        """The stages as `decodebench plan --json` tells them."""
        return [
            {"layers": [one.first, one.end], "device": one.device, "count": one.count}
            for one in self.stages
        ]


def better_first(wanted: Wanted) -> Callable[[Any], tuple[float, float, float]]:
    """A sort key of what has a goodput, a cost and a latency, as `plan` chooses."""
    if wanted.target is None:
        return lambda one: (-one.goodput_per_s, one.cost, one.latency_ms)
    return lambda one: (one.cost, -one.goodput_per_s, one.latency_ms)


def plan(profile: StageProfile, cluster: DeviceCluster, wanted: Wanted) -> StagePlan:
    """The best plan: of the highest goodput and then the lowest cost, or with a target of the
    lowest cost and then the highest goodput; then of the lowest latency.

    Raises:
        UserError: when there is none; it names the smallest SLO that a plan meets, the highest
            goodput or the lowest cost, whichever stands in the way.
    """
    costs = stage_costs(profile, cluster)
    found = _Search(costs, wanted).chosen()
    if found is None:
        least_ms = _Search(costs, wanted).least_slo_ms()

        def best(other: Wanted) -> StagePlan | None:
            return _Search(costs, other).chosen()

        raise UserError(why_none(profile, cluster, wanted, least_ms, best))
    return found


def plan_or_none(
    profile: StageProfile, cluster: DeviceCluster, wanted: Wanted, every_cut: bool = False
) -> StagePlan | None:
    """As `plan`, but None where there is none: what stands in the way takes far longer to tell.
    With `every_cut` of the plans alone that cut at every ramp. Raises `UserError` for a cluster too
    large to plan as a whole."""
    return _Search(stage_costs(profile, cluster, every_cut), wanted).chosen()


def least_slo_ms(
    profile: StageProfile, cluster: DeviceCluster, wanted: Wanted, every_cut: bool = False
) -> float:
    """The smallest SLO that a plan meets with what else is wanted; infinite where that is beyond
    every plan, with `every_cut` every one that cuts at each ramp. Takes far longer than
    `plan_or_none`."""
    return _Search(stage_costs(profile, cluster, every_cut), wanted).least_slo_ms()


def why_none(
    profile: StageProfile,
    cluster: DeviceCluster,
    wanted: Wanted,
    least_slo_ms: float,
    best: Callable[[Wanted], StagePlan | None],
) -> str:
    """The line that says what stands in the way where there is no plan.

    Args:
        least_slo_ms: that a plan meets with what else is wanted; infinite: none.
        best: the best plan for other wishes, or None.
    """
    rate, budget, target = wanted.rate, wanted.budget, wanted.target
    cheapest = min(cluster.price[kind] for kind in cluster.devices)
    if budget is not None and cheapest > budget * (1 + MET):
        told = f"one device costs {rounded(cheapest)} or more"
        return f"--budget {budget:g}: pays for no device; {told}"
    if target is not None and least_slo_ms == math.inf:
        if rate is not None and target > rate * (1 + MET):
            told = "a plan answers no more requests than arrive"
            return f"--target {target:g}: above --rate {rate:g}; {told}"
        most = best(replace(wanted, slo_ms=ANY_MS, target=None))
        assert most is not None  # the whole model on one device
        paid = "" if budget is None else f" within the budget of {budget:g}"
        reached = rounded(most.goodput_per_s * (1 + SAME / 2), ROUND_FLOOR)
        told = f"not enough devices{paid}: the highest goodput is {reached} a second"
        return f"--target {target:g}: {told}"
    slack = f" with a slack of {wanted.slack_ms:g} ms" if wanted.slack_ms else ""
    limits = [("rate", rate), ("budget", budget), ("target", target)]
    given = ", ".join(f"--{name} {limit:g}" for name, limit in limits if limit is not None)
    told = f"no plan meets it{slack}{' at ' if given else ''}{given}"
    told = f"{told}; the smallest SLO that a plan meets is {rounded(least_slo_ms)} ms"
    if rate is not None and best(replace(wanted, rate=None, target=None)) is not None:
        arrives = f"a batch of {profile.batch} takes {1e3 * profile.batch / rate:.6g} ms to arrive"
        told += f"; {arrives}: profile a smaller one, or plan for a higher rate (simulate "
        told += "--plan-rate)"
    return f"--slo-ms {wanted.slo_ms:g}: {told}"


def most_latency_ms(wanted: Wanted) -> float:
    """What a plan's latency may be at most, within rounding."""
    return wanted.slo_ms * (1 + MET) - wanted.slack_ms


class _Search:
    """The cycle times that may be, and what is the best at or between them."""

    def __init__(self, costs: StageCosts, wanted: Wanted) -> None:
        self.costs, self._wanted = costs, wanted
        self._useful = UsefulStages(costs)
        self._least_ms = 0.0 if wanted.rate is None else 1e3 * costs.batch / wanted.rate
        self._spent = costs.spent()
        budget = math.inf if wanted.budget is None else wanted.budget
        self._affordable: NDArray[np.bool_] = self._spent <= budget * (1 + MET)
        cycles = costs.cycles(self._least_ms)
        if wanted.target is not None:
            most_ms = 1e3 * costs.batch / wanted.target
            cycles = np.append(cycles[cycles < most_ms], max(most_ms, self._least_ms))
            if self._least_ms > most_ms * (1 + MET):
                cycles = cycles[:0]
        self._cycles = cycles[DeviceBound(costs, self._affordable).least(cycles) :]

    def chosen(self) -> StagePlan | None:
        """The plan that `plan` answers, or None."""
        wanted = self._wanted
        if wanted.target is None:
            return self.fastest()
        cost = self.cheapest()
        if cost is None:
            return None
        budget = cost if wanted.budget is None else min(cost, wanted.budget)
        return _Search(self.costs, replace(wanted, budget=budget)).fastest()

    def fastest(self) -> StagePlan | None:
        """The plan of the highest goodput within SLO and budget, or None."""
        cycles = self._cycles

        def value(first: int, end: int) -> float:
            return float(cycles[first]) if self._good(first, end)[1].any() else math.inf

        parts = growing(0, len(cycles))
        found = best([(float(cycles[first]), first, end) for first, end in parts], value)
        return None if found is None else self._plan(found[1])

    def cheapest(self) -> float | None:
        """The lowest cost of a plan that reaches the target within SLO and budget, or None."""

        def value(first: int, end: int) -> float:
            return float(np.min(self._spent[self._good(first, end)[1]], initial=math.inf))

        last = len(self._cycles) - 1
        if last < 0:
            return None
        found = best([(0.0, last, last + 1), *([(0.0, 0, last)] if last else [])], value)
        return None if found is None else found[0]

    def least_slo_ms(self) -> float:
        """The smallest SLO that a plan meets, or infinity."""
        last = len(self._cycles) - 1
        if last < 0:
            return math.inf
        whole_ms = float(np.min(self.costs.work[:, 0, -1] / self.costs.devices))
        place = min(int(np.searchsorted(self._cycles, whole_ms)), last)
        most_ms = float(np.min(self._latency(place, place + 1)[self._affordable])) * (1 + MET)

        def value(first: int, end: int) -> float:
            return float(np.min(self._latency(first, end, most_ms)[self._affordable]))

        found = best([(0.0, 0, len(self._cycles))], value)
        return math.inf if found is None else found[0] + self._wanted.slack_ms

    def _latency(self, first: int, end: int, most_ms: float = math.inf) -> Floats:
        """Latency by devices used, `costs.shape`: at a single place exact, for a range a bound;
        infinite where it is above `most_ms`."""
        counts = self.costs.needed(float(self._cycles[end - 1]))
        waits = self.costs.waits(float(self._cycles[first]))
        added = self._useful.added(counts, waits, most_ms)
        return np.asarray(least_latency(self.costs, counts, added)[-1])

    def _good(self, first: int, end: int) -> tuple[Floats, NDArray[np.bool_]]:
        limit = most_latency_ms(self._wanted)
        latency = self._latency(first, end, limit)
        return latency, self._affordable & (latency <= limit) & (latency < math.inf)

    def _plan(self, place: int) -> StagePlan:
        """The plan at a cycle time: of those within SLO and budget the cheapest, then the one of
        the lowest latency."""
        latency, good = self._good(place, place + 1)
        lowest = np.min(self._spent[good])
        good &= self._spent <= lowest * (1 + MET)
        flat = int(np.argmin(np.where(good, latency, np.inf)))
        used = tuple(int(n) for n in np.unravel_index(flat, latency.shape))
        cycle_ms = float(self._cycles[place])
        counts, waits = self.costs.needed(cycle_ms), self.costs.waits(cycle_ms)
        found = least_latency(self.costs, counts, self._useful.added(counts, waits, math.inf))
        return self._told(stages_of(self.costs, counts, waits, found, used), used)

    def _told(self, stages: list[tuple[int, int, int, int]], used: tuple[int, ...]) -> StagePlan:
        costs = self.costs
        made = tuple(
            PlannedStage(
                first,
                end,
                costs.kinds[kind],
                many,
                float(costs.work[kind, first, end]) / many,
                float(costs.alive[first]),
            )
            for first, end, kind, many in stages
        )
        moved = (float(costs.link_ms[one.first]) for one in made)
        cycle_ms = max([self._least_ms, *moved, *(one.cycle_ms for one in made)])
        waits = costs.waits(cycle_ms)
        latency_ms = sum(
            float(costs.service[kind, first, end] + waits[first]) for first, end, kind, _ in stages
        )
        cost = float(self._spent[used])
        return StagePlan(
            made, costs.batch, 1e3 * costs.batch / cycle_ms, latency_ms, cost, cycle_ms
        )


def rounded(value: float, way: str = ROUND_CEILING) -> str:
    """A number rounded to `DIGITS` digits, up or down, so that what it names is met."""
    found = Context(prec=DIGITS, rounding=way).create_decimal_from_float(value)
    return f"{found.normalize():f}"
