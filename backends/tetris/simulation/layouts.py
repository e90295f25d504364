"""The pipeline of a plan, and what it is measured against: the same devices without a pipeline."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from backends.tetris.pipeline.fusion import FusionQueue
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import StagePlan
from backends.tetris.simulation.lanes import Crew, Lane, Layout, Work, names

Stage = tuple[int, int, str]


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
        work = _by_inputs(partial(_stage_ms, times, one.first, one.end))
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
    work = DATA_PARALLEL[what](times)
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
    every = dict.fromkeys(devices, times)
    return regrouped_by_kind(every, devices, dict.fromkeys(devices, cuts), wait_ms)


def regrouped_by_kind(
    times: Mapping[str, StageTimes],
    devices: Mapping[str, int],
    cuts: Mapping[str, Sequence[int]],
    wait_ms: float = math.inf,
) -> Layout:
    """As `regrouped`, each kind of device with cuts of its own, and with the times that go with
    them. Who enters is asked at the ramps of the device that takes him."""
    lanes, crews = list[Lane](), list[Crew]()
    numbers: dict[str, itertools.count[int]] = {}
    quickest = sorted(devices, key=lambda kind: sum(times[kind].profile.layer_ms[kind]))
    batch = times[quickest[0]].profile.batch
    segments = {kind: _segments(times[kind], kind, cuts[kind]) for kind in devices}
    waiting = FusionQueue(batch, max(each[0].ahead_ms for each in segments.values()))
    idle: dict[int, dict[Crew, None]] = {}
    for rank, kind in enumerate(quickest):
        first, *later = segments[kind]
        entrance = Lane(first.end, waiting, first.work, idle=idle)
        lanes += [] if lanes else [entrance]
        for device in names(kind, devices[kind], numbers):
            free: dict[int, dict[Crew, None]] = {}
            queues = [FusionQueue(batch, one.ahead_ms, wait_ms) for one in later]
            own = [
                Lane(one.end, queue, one.work, idle=free)
                for one, queue in zip(later, queues, strict=True)
            ]
            for one, after in itertools.pairwise(own):
                one.after = after
            lanes += own
            crews.append(Crew(kind, [device], [*reversed(own), entrance], rank))
    own_cuts = {kind: tuple(cuts[kind]) for kind in devices}
    return Layout(tuple(lanes), tuple(crews), own_cuts[quickest[0]], own_cuts)


@dataclass(frozen=True, slots=True)
class _Segment:
    """Layers up to `end` - 1 of the model in one device, and the time from its start to the end of
    the model for a whole batch that nobody leaves."""

    end: int
    ahead_ms: float
    work: Work


def _segments(times: StageTimes, kind: str, cuts: Sequence[int]) -> list[_Segment]:
    batch, found, ahead_ms = times.profile.batch, list[_Segment](), 0.0
    for first, end in reversed([*zip((0, *cuts), (*cuts, times.profile.layers), strict=True)]):
        ahead_ms += in_place_ms(times, kind, first, end, batch)
        ahead_ms += _fills_ms(times, kind, first, end, batch)
        work = _by_inputs(partial(_stage_ms, times, first, end, in_place=True))
        found.append(_Segment(end, ahead_ms, work))
    return found[::-1]


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


def _by_inputs(took_ms: Callable[[str, int], float]) -> Work:
    """A batch that takes what its inputs are many, whatever they do: reckoned once for each."""
    known = cache(took_ms)

    def work(kind: str, requests: list[int], depths: list[int]) -> tuple[float, None]:
        return known(kind, len(requests)), None

    return work


def _stage_ms(
    times: StageTimes, first: int, end: int, kind: str, inputs: int, *, in_place: bool = False
) -> float:
    """A stage at its batch, with the fills that come with it."""
    alone = in_place_ms if in_place else StageTimes.stage_ms
    return alone(times, kind, first, end, inputs) + _fills_ms(times, kind, first, end, inputs)


def _plain(times: StageTimes) -> Work:
    return _by_inputs(lambda kind, count: times.stage_ms(kind, 0, times.profile.layers, count))


def _shrinking(times: StageTimes) -> Work:
    """Who leaves at a ramp is answered there, and the batch goes on without it (DeeBERT's exits, by
    sequence). All ramps are asked."""
    profile = times.profile
    ramps = set(profile.ramps_before(profile.layers))

    @cache
    def steps(kind: str, alive: int) -> list[tuple[float, float]]:
        """Each layer, and the ramp behind it."""
        share, ramp = times.share(kind, alive), times.ramp_ms(kind, alive)
        each = enumerate(profile.layer_ms[kind], 1)
        return [(share * ms, ramp if place in ramps else 0.0) for place, ms in each]

    def work(kind: str, requests: list[int], depths: list[int]) -> tuple[float, list[float]]:
        fill, deepest, total = profile.fill_ms[kind], max(depths), len(depths)
        alive, behind = total, [times.batch_ms(kind, total)]
        leavers = [0] * (profile.layers + 1)
        for depth in depths:
            leavers[depth] += 1
        for layer in range(deepest):
            took, checked = steps(kind, alive)[layer]
            filled = fill[layer] * (total - alive) / profile.batch
            behind.append(behind[-1] + took + checked + filled)
            alive -= leavers[layer + 1]
        rest = sum(fill[deepest:]) * total / profile.batch
        return behind[-1] + rest, [behind[depth] for depth in depths]

    return work


def _together(times: StageTimes) -> Work:
    """The batch leaves at the first ramp where each of its inputs has been sure at one: the
    early-exit paper's rule. All ramps up to it are asked."""
    profile = times.profile

    @cache
    def took_ms(kind: str, deepest: int, inputs: int) -> float:
        ramps = len(profile.ramps_before(min(deepest + 1, profile.layers)))
        layers = times.share(kind, inputs) * sum(profile.layer_ms[kind][:deepest])
        rest = times.fill_ms(kind, deepest, profile.layers, inputs) + times.batch_ms(kind, inputs)
        return layers + ramps * times.ramp_ms(kind, inputs) + rest

    return lambda kind, requests, depths: (took_ms(kind, max(depths), len(depths)), None)


DATA_PARALLEL: dict[str, Callable[[StageTimes], Work]] = {
    "plain": _plain,
    "shrinking batch": _shrinking,
    "batch rule": _together,
}
