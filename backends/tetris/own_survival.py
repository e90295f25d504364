"""Plans for who leaves where only a plan's own ramps are on.

A profile's survival is that with all ramps on. Who would have left at a ramp that a plan switches
off may leave at its next one, or stay: what a log of decisions says and a survival curve does not.
So a plan is made, who leaves under its cuts is counted again, and another one is made for them,
until nothing changes; of the plans on the way the best counts, each by its own survival.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from backends.tetris import planner
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.planner import StagePlan
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted
from harness.core.errors import UserError

ROUNDS = 8


def under_cuts(
    profile: StageProfile, decisions: LeaveDecisions, cuts: Sequence[int]
) -> StageProfile:
    """The profile with ramps at the cuts alone, and the survival that goes with them."""
    inside = tuple(sorted(cut for cut in cuts if cut < profile.layers))
    return replace(profile, survival=tuple(decisions.alive(inside).tolist()), ramps=inside)


def near(cuts: tuple[int, ...], ramps: Sequence[int]) -> Iterator[tuple[int, ...]]:
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
    found, refused = list[tuple[StagePlan, StageProfile]](), None
    for cuts in _tried(profile, cluster, wanted, decisions):
        try:
            found.append(_own(profile, cluster, wanted, decisions, cuts))
        except UserError as error:
            refused = refused or error
    if not found:
        raise refused or UserError("no plan")
    order = planner.better_first(wanted)
    return min(found, key=lambda pair: order(pair[0]))


def _tried(
    profile: StageProfile, cluster: DeviceCluster, wanted: Wanted, decisions: LeaveDecisions
) -> Iterator[tuple[int, ...]]:
    """Cuts of plans that are made one after another, each for who leaves under those before it;
    and none."""
    survival, tried = tuple(decisions.alive().tolist()), set[tuple[int, ...]]([()])
    yield ()
    for _ in range(ROUNDS):
        known = replace(profile, survival=survival)
        try:
            cuts = planner.plan(known, cluster, wanted).cuts
        except UserError:
            if len(tried) == 1:
                raise
            return  # those before it may do
        if cuts in tried:
            return
        tried.add(cuts)
        yield cuts
        survival = under_cuts(profile, decisions, cuts).survival


def _own(
    profile: StageProfile,
    cluster: DeviceCluster,
    wanted: Wanted,
    decisions: LeaveDecisions,
    cuts: tuple[int, ...],
) -> tuple[StagePlan, StageProfile]:
    """A plan with these cuts, or some of them, and the survival under its own."""
    while True:
        known = under_cuts(profile, decisions, cuts)
        made = planner.plan(known, cluster, wanted)
        if made.cuts == cuts:
            return made, known
        cuts = made.cuts
