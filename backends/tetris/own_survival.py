"""Plans for who leaves where only a plan's own ramps are on.

A profile's survival is that with all ramps on. Who would have left at a ramp that a plan switches
off may leave at its next one, or stay: what a log of decisions says and a survival curve does not.
So a plan is made, who leaves under its cuts is counted again, and another one is made for them,
until nothing changes. From the best of these, each by its own survival, other cuts are tried: where
there are few ramps all that they allow, else those nearby, until none is better. A bound says which
cannot be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Self

import numpy as np

from backends.tetris import planner
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.planner import MET, StagePlan
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted
from backends.tetris.stage_costs import stage_costs
from harness.core.errors import UserError

ROUNDS = 8
MOST_RAMPS = 8
"""Of which all choices are tried."""
NEVER = math.inf, math.inf
NOTHING = math.inf, 0.0

Cuts = tuple[int, ...]


def under_cuts(
    profile: StageProfile, decisions: LeaveDecisions, cuts: Sequence[int]
) -> StageProfile:
    """The profile with ramps at the cuts alone, and the survival that goes with them."""
    inside = tuple(sorted(cut for cut in cuts if cut < profile.layers))
    return replace(profile, survival=tuple(decisions.alive(inside).tolist()), ramps=inside)


def by_all_ramps(profile: StageProfile, decisions: LeaveDecisions) -> StageProfile:
    """The profile with the survival that goes with all of its ramps."""
    return replace(profile, survival=tuple(decisions.alive().tolist()))


def near(cuts: Cuts, ramps: Sequence[int]) -> Iterator[Cuts]:
    """Cuts with one fewer, one more, or one of them at the next ramp before or behind it."""
    for place, cut in enumerate(cuts):
        yield (*cuts[:place], *cuts[place + 1 :])
        at = ramps.index(cut)
        for other in ramps[max(at - 1, 0) : at + 2]:
            if other not in cuts:
                yield tuple(sorted((*cuts[:place], other, *cuts[place + 1 :])))
    for other in ramps:
        if other not in cuts:
            yield tuple(sorted((*cuts, other)))


def plan(
    profile: StageProfile, cluster: DeviceCluster, wanted: Wanted, decisions: LeaveDecisions
) -> tuple[StagePlan, StageProfile]:
    """The best plan that was found, by the order of `planner.plan`, and the profile as it is under
    its cuts, for which it is made. Raises `UserError` when there is none."""
    search = _CutSearch(profile, cluster, wanted, decisions).run()
    if search.found is None:

        @cache
        def best(other: Wanted) -> StagePlan | None:
            return _CutSearch(profile, cluster, other, decisions).run().found

        quickest = _SloSearch(profile, cluster, wanted, decisions)
        unbound = replace(wanted, slo_ms=planner.ANY_MS, target=None)
        most = None if wanted.target is None else best(unbound)
        quickest.run([] if most is None else [most.cuts])
        if quickest.value[0] <= wanted.slo_ms * (1 + MET):  # of many ramps not all was tried
            search.run([quickest.cuts])
    if search.found is None:
        least_ms = quickest.value[0]
        raise UserError(planner.why_none(profile, cluster, wanted, least_ms, best))
    return search.found, under_cuts(profile, decisions, search.cuts)


class _CutSearch:
    """The best plan until now with its cuts, and what `planner.better_first` says of it."""

    def __init__(
        self,
        profile: StageProfile,
        cluster: DeviceCluster,
        wanted: Wanted,
        decisions: LeaveDecisions,
    ) -> None:
        self._profile, self._cluster = profile, cluster
        self._wanted, self._decisions = wanted, decisions
        self._order = planner.better_first(wanted)
        self._tried: set[Cuts] = set()
        self.found: StagePlan | None = None
        self.cuts: Cuts = ()
        self.value: tuple[float, ...] = NOTHING

    def run(self, first: Iterable[Cuts] = ()) -> Self:
        """Search from no cuts, from these, and from where plans lead that are made one after
        another, each for who leaves under the one before."""
        for cuts in itertools.chain(((), *first), self._walk()):
            self._try(cuts)
        ramps = self._profile.ramps_before(self._profile.layers)
        if len(ramps) <= MOST_RAMPS:
            numbers = range(len(ramps) + 1)
            self._take(itertools.chain(*(itertools.combinations(ramps, n) for n in numbers)))
        else:
            while self.value != NOTHING and self._take(near(self.cuts, ramps)):
                pass
        return self

    def _walk(self) -> Iterator[Cuts]:
        known = by_all_ramps(self._profile, self._decisions)
        for _ in range(ROUNDS):
            made = planner.plan_or_none(known, self._cluster, self._wanted)
            if made is None or made.cuts in self._tried:
                return
            yield made.cuts
            survival = under_cuts(self._profile, self._decisions, made.cuts).survival
            known = replace(self._profile, survival=survival)

    def _take(self, every: Iterable[Cuts]) -> bool:
        """Try cuts, the most promising first, until no other can be better than what was found;
        whether something was."""
        before = self.value
        bounds = sorted((self._bound(cuts), cuts) for cuts in every if cuts not in self._tried)
        for bound, cuts in bounds:
            if bound > self.value[:2]:
                break
            self._try(cuts)
        return self.value != before

    def _try(self, cuts: Cuts) -> None:
        if cuts in self._tried:
            return
        self._tried.add(cuts)
        value, made = self._best(under_cuts(self._profile, self._decisions, cuts))
        if value < self.value:
            self.value, self.cuts, self.found = value, cuts, made

    def _best(self, known: StageProfile) -> tuple[tuple[float, ...], StagePlan | None]:
        """The best plan with exactly these cuts: one with some of them would be credited with who
        leaves at the others."""
        made = planner.plan_or_none(known, self._cluster, self._wanted, every_cut=True)
        return (NOTHING, None) if made is None else (self._order(made), made)

    def _bound(self, cuts: Cuts) -> tuple[float, float]:
        """No plan with exactly these cuts comes before it: all devices together do the work of each
        stage where that is least, told as a share of the whole model's on the same kind. There is
        none when a device for each stage is beyond the budget, or the target beyond that pace."""
        known = under_cuts(self._profile, self._decisions, cuts)
        costs = stage_costs(known, self._cluster)
        first, end = [0, *cuts], [*cuts, known.layers]
        work = costs.work[:, first, end]
        rate, target, budget = self._wanted.rate, self._wanted.target, self._wanted.budget
        affordable = math.inf if budget is None else budget * (1 + 2 * MET)
        if not np.isfinite(work).all() or len(first) * min(costs.prices) > affordable:
            return NEVER
        whole = work.sum(axis=1, keepdims=True)
        pace = float(np.sum(np.asarray(costs.devices) / whole[:, 0]))
        least_ms = max(float((work / whole).min(axis=0).sum()) / pace, *costs.link_ms[first])
        priced = work * np.asarray(costs.prices)[:, None]
        paid, least_ms = float(priced.min(axis=0).sum()) * (1 - MET), least_ms * (1 - MET)
        batch_ms = 1e3 * costs.batch
        if rate is not None:
            least_ms = max(least_ms, batch_ms / rate)
        if target is not None and least_ms > batch_ms / (target * (1 - MET)):
            return NEVER
        quickest = costs.service[:, first, end].min(axis=0) + costs.waits(least_ms)[first]
        return self._promised(
            batch_ms / least_ms, paid / batch_ms, float(quickest.sum()) * (1 - MET)
        )

    def _promised(self, goodput: float, paid: float, latency_ms: float) -> tuple[float, float]:
        """The bound, for the most a second, the least cost of one a second and the least latency;
        there is no plan when the quickest kind at each stage misses the SLO at that pace."""
        target = self._wanted.target
        if latency_ms > planner.most_latency_ms(self._wanted):
            return NEVER
        if target is None:
            return -goodput, paid * goodput
        return paid * target * (1 - MET), -goodput


class _SloSearch(_CutSearch):
    """The smallest SLO that a plan meets with what else is wanted, and its cuts."""

    def _walk(self) -> Iterator[Cuts]:
        return iter(())

    def _best(self, known: StageProfile) -> tuple[tuple[float, ...], StagePlan | None]:
        return (planner.least_slo_ms(known, self._cluster, self._wanted, every_cut=True), 0), None

    def _promised(self, goodput: float, paid: float, latency_ms: float) -> tuple[float, float]:
        return latency_ms + self._wanted.slack_ms, 0
