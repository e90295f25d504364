"""The pipeline of a plan, and what it is measured against: the same devices without a pipeline."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial

import numpy as np

from backends.tetris.own_survival import near
from backends.tetris.pipeline.fusion import FusionQueue
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import StagePlan
from backends.tetris.simulation.lanes import Crew, Lane, Layout, Work, names

Stage = tuple[int, int, str]
MOST_SEGMENTS = 4
"""That a device which regroups in place is given."""
MOST_CHOICES = 5_000
"""Of cuts that are all tried: three of 32 layers' ramps."""


def pipeline(
    times: StageTimes,
    plan: StagePlan,
    slow: Collection[str] = (),
    wait_ms: float = math.inf,
) -> Layout:
    """The stages of a plan; devices named in `slow` have no part in it. Survivors wait for one
    another for at most `wait_ms`."""
    batch, L = times.profile.batch, times.profile.layers
    stages = [(one.first, one.end, one.device) for one in plan.stages]
    numbers: dict[str, itertools.count[int]] = {}
    lanes, crews = [], []
    for place, one in enumerate(plan.stages):
        ahead = _ahead_ms(times, stages[place:])
        work = partial(_stage_work, times, one.first, one.end)
        lanes.append(Lane(one.end, FusionQueue(batch, ahead, wait_ms if place else math.inf), work))
        count, devices = one.count, list[str]()
        while len(devices) < count:
            devices += [n for n in names(one.device, 1, numbers) if n not in slow]
        crews.append(Crew(one.device, devices, [lanes[-1]]))
    for lane, after in itertools.pairwise(lanes):
        lane.after, lane.linked = after, True
    cuts = tuple(one.end for one in plan.stages if one.end < L)
    return Layout(tuple(lanes), tuple(crews), cuts)


def data_parallel(times: StageTimes, devices: Mapping[str, int], what: str) -> Layout:
    """Each device runs whole batches through the model as `what` says, one of `DATA_PARALLEL`."""
    profile = times.profile
    slowest = max(devices, key=lambda kind: sum(profile.layer_ms[kind]))
    work: Work = partial(DATA_PARALLEL[what], times)
    ramps = 0 if what == "plain" else len(profile.ramps_before(profile.layers))
    ahead = times.stage_ms(slowest, 0, profile.layers, profile.batch)
    ahead += ramps * profile.ramp_ms[slowest]
    if what == "shrinking batch":
        gone = [1 - share for share in profile.survival[:-1]]
        ahead += sum(map(operator.mul, gone, profile.fill_ms[slowest]))
    lane = Lane(profile.layers, FusionQueue(profile.batch, ahead), work)
    numbers: dict[str, itertools.count[int]] = {}
    quickest = sorted(devices, key=lambda kind: sum(profile.layer_ms[kind]))
    crews = [
        Crew(kind, names(kind, devices[kind], numbers), [lane], rank)
        for rank, kind in enumerate(quickest)
    ]
    return Layout((lane,), tuple(crews), () if what == "plain" else None)


def regrouped(
    times: StageTimes,
    devices: Mapping[str, int],
    cuts: Sequence[int],
    wait_ms: float = math.inf,
) -> Layout:
    """Each device runs the segments between `cuts` in turn and fuses its own survivors before each:
    regrouping in place (DREX, arXiv 2512.15705). The deepest segment that is ready runs first.
    Survivors wait for one another for at most `wait_ms`."""
    profile = times.profile
    ends = [*cuts, profile.layers]
    spans = list(zip([0, *cuts], ends, strict=True))
    slowest = max(devices, key=lambda kind: sum(profile.layer_ms[kind]))

    def lane(place: int) -> Lane:
        first, end = spans[place]
        ahead = sum(
            in_place_ms(times, slowest, i, j, profile.batch)
            + _fills_ms(times, slowest, i, j, profile.batch)
            for i, j in spans[place:]
        )
        work = partial(_stage_work, times, first, end, in_place=True)
        queue = FusionQueue(profile.batch, ahead, wait_ms if place else math.inf)
        return Lane(end, queue, work)

    entrance = lane(0)
    lanes, crews = [entrance], []
    numbers: dict[str, itertools.count[int]] = {}
    quickest = sorted(devices, key=lambda kind: sum(profile.layer_ms[kind]))
    for rank, kind in enumerate(quickest):
        for device in names(kind, devices[kind], numbers):
            own = [lane(place) for place in range(1, len(spans))]
            for one, after in itertools.pairwise(own):
                one.after = after
            lanes += own
            crews.append(Crew(kind, [device], [*reversed(own), entrance], rank))
    return Layout(tuple(lanes), tuple(crews), tuple(cuts))


def best_segments(
    times: StageTimes, kind: str, most: int, decisions: LeaveDecisions | None = None
) -> list[tuple[int, ...]]:
    """For 2 to `most` segments the cuts, at ramps, of the least work for each input at full
    batches, which is what a device that regroups in place can reach; fewer where no cut pays. With
    `decisions` who leaves is counted for ramps at these cuts alone, else by the profile."""
    if decisions is not None:
        return _segments_under(times, kind, most, decisions)
    profile = times.profile
    L, alive, ramps = profile.layers, profile.survival, profile.ramps_before(profile.layers)

    def work(first: int, end: int) -> float:
        return _segment_work(times, kind, first, end, alive[first])

    best: list[tuple[float, tuple[int, ...]]] = [(work(0, j), ()) for j in range(1, L + 1)]
    found: list[tuple[int, ...]] = []
    least = best[-1][0]
    for segments in range(2, min(most, L) + 1):
        best = [
            min(
                ((best[i - 1][0] + work(i, j), (*best[i - 1][1], i)) for i in ramps if i < j),
                default=(float("inf"), ()),
            )
            for j in range(1, L + 1)
        ]
        if len(best[-1][1]) < segments - 1 or best[-1][0] >= least:
            break
        least = best[-1][0]
        found.append(best[-1][1])
    return found


def _segment_work(times: StageTimes, kind: str, first: int, end: int, alive: float) -> float:
    whole = in_place_ms(times, kind, first, end, times.profile.batch)
    gone = (1 - alive) * times.profile.batch
    return alive * whole + times.fill_ms(kind, first, end, gone)


def _segments_under(
    times: StageTimes, kind: str, most: int, decisions: LeaveDecisions
) -> list[tuple[int, ...]]:
    """All choices of cuts are tried where they are few, else those of one segment fewer and one cut
    more, and from there on single cuts are moved."""
    L = times.profile.layers
    ramps = times.profile.ramps_before(L)

    leaves = decisions.by_ramp()

    @cache
    def alive(cuts: tuple[int, ...]) -> float:
        gone = np.logical_or.reduce([leaves[cut - 1] for cut in cuts])
        return 1 - np.count_nonzero(gone) / len(decisions)

    def work(cuts: tuple[int, ...]) -> float:
        spans = enumerate(itertools.pairwise((0, *cuts, L)))
        return sum(
            _segment_work(times, kind, first, end, alive(cuts[:place]))
            for place, (first, end) in spans
        )

    found, best = list[tuple[int, ...]](), tuple[int, ...]()
    for number in range(1, min(most, len(ramps) + 1)):
        if math.comb(len(ramps), number) <= MOST_CHOICES:
            chosen = min(itertools.combinations(ramps, number), key=work)
        else:
            chosen = min((one for one in near(best, ramps) if len(one) == number), key=work)
            chosen = _moved(chosen, ramps, work)
        if work(chosen) >= work(best):
            break
        best = chosen
        found.append(best)
    return found


def _moved(
    cuts: tuple[int, ...], ramps: Sequence[int], work: Callable[[tuple[int, ...]], float]
) -> tuple[int, ...]:
    """Cuts that no move of a single one makes better."""
    while True:
        moves = (one for one in near(cuts, ramps) if len(one) == len(cuts))
        better = min(moves, key=work, default=cuts)
        if work(better) >= work(cuts):
            return cuts
        cuts = better


def in_place_ms(times: StageTimes, kind: str, first: int, end: int, inputs: int) -> float:
    """A segment in the process that has the whole model: what is outside the layers is counted
    where a batch enters."""
    outside = times.batch_ms(kind, inputs) if first == 0 else 0.0
    return times.layers_ms(kind, first, end, inputs) + outside


def _ahead_ms(times: StageTimes, stages: Sequence[Stage]) -> float:
    """From here to the end for a whole batch: stages with the fills that come with it, and the
    transfers between them."""
    batch = times.profile.batch
    service = sum(times.stage_ms(kind, first, end, batch) for first, end, kind in stages)
    filled = sum(_fills_ms(times, kind, first, end, batch) for first, end, kind in stages)
    moved = sum(times.transfer_ms(first, batch) for first, _, _ in stages[1:])
    return service + filled + moved


def _fills_ms(times: StageTimes, kind: str, first: int, end: int, inputs: int) -> float:
    """Of those that left, in proportion to so many inputs that come."""
    alive = times.profile.survival[first]
    gone = inputs * (1 - alive) / alive if alive > 0 else 0.0
    return times.fill_ms(kind, first, end, gone)


def _stage_work(
    times: StageTimes,
    first: int,
    end: int,
    kind: str,
    requests: list[int],
    depths: list[int],
    *,
    in_place: bool = False,
) -> tuple[float, None]:
    """A stage at its batch, with the fills that come with it."""
    alone = in_place_ms if in_place else StageTimes.stage_ms
    inputs = len(requests)
    filled = _fills_ms(times, kind, first, end, inputs)
    return alone(times, kind, first, end, inputs) + filled, None


def _plain(
    times: StageTimes, kind: str, requests: list[int], depths: list[int]
) -> tuple[float, None]:
    return times.stage_ms(kind, 0, times.profile.layers, len(requests)), None


def _shrinking(
    times: StageTimes, kind: str, requests: list[int], depths: list[int]
) -> tuple[float, list[float]]:
    """Who leaves at a ramp is answered there, and the batch goes on without it (DeeBERT's exits, by
    sequence). All ramps are asked."""
    profile, share = times.profile, times.share
    ramps = set(profile.ramps_before(profile.layers))
    layers, fill = profile.layer_ms[kind], profile.fill_ms[kind]
    total, alive, behind = len(depths), len(depths), [times.batch_ms(kind, len(depths))]
    leavers = [0] * (profile.layers + 1)
    for depth in depths:
        leavers[depth] += 1
    for layer in range(max(depths)):
        checked = times.ramp_ms(kind, alive) if layer + 1 in ramps else 0.0
        filled = fill[layer] * (total - alive) / profile.batch
        behind.append(behind[-1] + share(kind, alive) * layers[layer] + checked + filled)
        alive -= leavers[layer + 1]
    rest = sum(fill[max(depths) :]) * total / profile.batch
    return behind[-1] + rest, [behind[depth] for depth in depths]


def _together(
    times: StageTimes, kind: str, requests: list[int], depths: list[int]
) -> tuple[float, None]:
    """The batch leaves at the first ramp where each of its inputs has been sure at one: the
    early-exit paper's rule. All ramps up to it are asked."""
    profile, deepest, inputs = times.profile, max(depths), len(depths)
    ramps = len(profile.ramps_before(min(deepest + 1, profile.layers)))
    layers = times.share(kind, inputs) * sum(profile.layer_ms[kind][:deepest])
    rest = times.fill_ms(kind, deepest, profile.layers, inputs) + times.batch_ms(kind, inputs)
    return layers + ramps * times.ramp_ms(kind, inputs) + rest, None


DATA_PARALLEL: dict[str, Callable[..., tuple[float, list[float] | None]]] = {
    "plain": _plain,
    "shrinking batch": _shrinking,
    "batch rule": _together,
}
