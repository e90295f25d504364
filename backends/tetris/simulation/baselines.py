"""What the devices of a plan give without a pipeline, in closed form.

Each baseline runs the whole model in every device and has as many clients as keep all of them busy.
A device of kind c takes `work` milliseconds for each B inputs that enter, so that m_c devices of
each kind answer sum(m_c B / work_c). What the inputs of a batch do is drawn from the profile's
survival: of B inputs the number alive in front of a layer is binomial. Regrouping in place runs
whole batches in every segment, as stages do, with one device to take turns on, and each kind of
device has the cuts that are best there; it is the strongest of them where devices are alike, and
the paper does not have it (DREX, arXiv 2512.15705).

A latency is the longest expected, as a plan's is: the wait for a batch, the batch in the slowest
device with nobody leaving, and for regrouping in place before every later segment the wait until
survivors fill one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backends.tetris.own_survival import under_cuts
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import MET, StagePlan, better_first
from backends.tetris.profile import DeviceCluster, StageProfile, Wanted
from backends.tetris.simulation.layouts import in_place_ms
from backends.tetris.simulation.segments import MOST_SEGMENTS, best_segments
from backends.tetris.stage_costs import Floats

REGROUPING = "regrouping in place"
BASELINES = ("plain", "shrinking batch", "batch rule", REGROUPING)
MOST_DRAWN = 4_096
"""Above so many inputs of a batch the number alive is taken to be its mean, from which it is off by
less than a hundredth."""
MOST_MIXES = 256
"""Of cuts for each kind of device that are all tried: four kinds'."""

Cuts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BaselinePlan:
    """What a baseline gives within budget, SLO and rate: requests a second, the longest latency
    (ms), and the price of the devices that it uses."""

    name: str
    goodput_per_s: float
    latency_ms: float
    cost: float
    devices: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """As `decodebench plan --json` tells it."""
        told = {key: getattr(self, key) for key in ("goodput_per_s", "latency_ms", "cost")}
        return {**told, "devices": dict(self.devices)}


@dataclass(frozen=True, slots=True)
class InDevice:
    """Milliseconds: of work for each batch that enters, in it with nobody leaving, and the share
    alive in front of each later segment, in which survivors wait for one another."""

    work_ms: float
    service_ms: float
    fused: tuple[float, ...] = ()

    @property
    def filling_ms(self) -> float:
        """The waits of survivors for one another, where the device is always busy."""
        return self.work_ms * sum(1 / share for share in self.fused)

    @property
    def longest_ms(self) -> float:
        """In the device, where that is always busy."""
        return self.service_ms + self.filling_ms


def baselines(
    profile: StageProfile,
    cluster: DeviceCluster,
    wanted: Wanted,
    decisions: LeaveDecisions | None = None,
) -> dict[str, BaselinePlan | None]:
    """The best that each baseline makes of the cluster for what is wanted. None where no choice of
    devices meets it, and for a shrinking batch where the profile does not tell what fewer inputs
    take (`time_share`). Regrouping in place asks the ramps at its cuts alone: `decisions`, where
    they are known, tell who leaves there; else the profile's survival has to do."""
    known = profile.batch == 1 or bool(profile.time_share)
    if not known:
        told = dict.fromkeys(profile.layer_ms, ((profile.batch, 1.0),))
        times = StageTimes(replace(profile, time_share=told))
    else:
        times = StageTimes(profile)
    found: dict[str, BaselinePlan | None] = {}
    for name, make in (("plain", _plain), ("shrinking batch", _shrinking), ("batch rule", _rule)):
        costs = {kind: make(times, kind) for kind in cluster.devices}
        usable = known or name != "shrinking batch"
        found[name] = _chosen(name, costs, cluster, profile.batch, wanted) if usable else None

    options = regrouping_options(times, list(cluster.devices), decisions)
    tried = [
        _chosen(
            REGROUPING,
            {kind: options[kind][cuts] for kind, cuts in mix.items()},
            cluster,
            profile.batch,
            wanted,
        )
        for mix in _mixes(options)
    ]
    found[REGROUPING] = min((one for one in tried if one), key=better_first(wanted), default=None)
    return found


def regrouping_options(
    times: StageTimes, kinds: Sequence[str], decisions: LeaveDecisions | None = None
) -> dict[str, dict[Cuts, InDevice]]:
    """By kind of device, the cuts with which regrouping in place is tried there, none of them
    first: for each number of segments those of the least work on this kind."""

    def under(cuts: Cuts) -> StageTimes:
        if decisions is None:
            return times
        return StageTimes(under_cuts(times.profile, decisions, cuts))

    return {
        kind: {
            cuts: _regrouped(under(cuts), kind, cuts)
            for cuts in ((), *best_segments(times, kind, MOST_SEGMENTS, decisions))
        }
        for kind in kinds
    }


def within_latencies(options: Mapping[str, Mapping[Cuts, InDevice]]) -> list[dict[str, Cuts]]:
    """Of all ways to choose cuts for each kind those that may be best where devices are always
    busy: for each bound on the latency in a device the least work of every kind within it."""
    bounds = sorted({one.longest_ms for each in options.values() for one in each.values()})
    found: list[dict[str, Cuts]] = []
    for bound in bounds:
        within = {
            kind: [cuts for cuts, one in each.items() if one.longest_ms <= bound]
            for kind, each in options.items()
        }
        if all(within.values()):
            mix = {
                kind: min(within[kind], key=lambda cuts: each[cuts].work_ms)
                for kind, each in options.items()
            }
            found += [] if mix in found else [mix]
    return found


def _mixes(options: Mapping[str, Mapping[Cuts, InDevice]]) -> list[dict[str, Cuts]]:
    """All ways, where they are few: at a rate that leaves devices idle survivors wait longer, and
    fewer segments may be better than within any bound."""
    if math.prod(len(each) for each in options.values()) > MOST_MIXES:
        return within_latencies(options)
    return [dict(zip(options, cuts, strict=True)) for cuts in itertools.product(*options.values())]


def refusal(
    plan: StagePlan, others: Mapping[str, BaselinePlan | None], wanted: Wanted
) -> str | None:
    """Why a plan cannot pay, in a line with its numbers: a baseline gives more on these devices
    (with a target: for the same price), or as much for less. None where it pays."""
    there = [one for one in others.values() if one is not None]
    best = min(there, key=better_first(wanted), default=None)
    if best is None:
        return None
    more = best.goodput_per_s > plan.goodput_per_s * (1 + MET)
    if more and (wanted.target is None or abs(best.cost - plan.cost) <= plan.cost * MET):
        share = plan.goodput_per_s / best.goodput_per_s
        told = f"{plan.goodput_per_s:,.6g} a second predicted, {share:.2f} of what {best.name}"
        where = (
            "on these devices" if wanted.target is None else f"at the same cost of {best.cost:.6g}"
        )
        return f"cannot pay: {told} gives {where}, {best.goodput_per_s:,.6g}"
    as_much = best.goodput_per_s >= plan.goodput_per_s * (1 - MET) or wanted.target is not None
    if as_much and best.cost < plan.cost * (1 - MET):
        told = f"costs {plan.cost:.6g}; {best.name} gives {best.goodput_per_s:,.6g} a second"
        return f"cannot pay: {told} for {best.cost:.6g}"
    return None


def _chosen(
    name: str,
    costs: Mapping[str, InDevice],
    cluster: DeviceCluster,
    batch: int,
    wanted: Wanted,
) -> BaselinePlan | None:
    """The best choice of numbers of devices; all of them are tried."""
    kinds = list(cluster.devices)
    counts = np.indices([cluster.devices[kind] + 1 for kind in kinds]).reshape(len(kinds), -1)
    counts = counts[:, 1:]  # no device at all answers nothing
    price: Floats = np.asarray([cluster.price[kind] for kind in kinds], float) @ counts
    most = 1e3 * batch * (np.asarray([1 / costs[kind].work_ms for kind in kinds]) @ counts)
    goodput = most if wanted.rate is None else np.minimum(most, wanted.rate)
    slower = most / goodput
    latency = np.zeros(counts.shape[1])
    for used, kind in zip(counts > 0, kinds, strict=True):
        inside = costs[kind].service_ms + costs[kind].filling_ms * slower
        latency = np.where(used, np.maximum(latency, inside), latency)
    latency += 1e3 * batch / goodput
    good = latency <= wanted.slo_ms * (1 + MET) - wanted.slack_ms
    if wanted.budget is not None:
        good &= price <= wanted.budget * (1 + MET)
    if wanted.target is not None:
        good &= goodput >= wanted.target * (1 - MET)
    if not good.any():
        return None
    keys: list[Floats] = [price, np.negative(goodput)]
    at = _first(good, *keys[:: 1 if wanted.target is not None else -1], latency)
    used_here = {kind: int(n) for kind, n in zip(kinds, counts[:, at], strict=True) if n}
    return BaselinePlan(name, float(goodput[at]), float(latency[at]), float(price[at]), used_here)


def _first(good: Any, *keys: Floats) -> int:
    """The place of the smallest of the first key, of those like it the smallest of the next, ..."""
    for key in keys:
        least = np.min(key[good])
        good = good & (key <= least + MET * abs(least))
    return int(np.argmax(good))


def _plain(times: StageTimes, kind: str) -> InDevice:
    whole = times.stage_ms(kind, 0, times.profile.layers, times.profile.batch)
    return InDevice(whole, whole)


def _shrinking(times: StageTimes, kind: str) -> InDevice:
    """Every layer at the number that is alive in front of it, with the ramp behind it."""
    profile = times.profile
    batch, alive, ramps = profile.batch, profile.survival, profile.ramps_before(profile.layers)
    work = service = times.batch_ms(kind, batch)
    for layer, ms in enumerate(profile.layer_ms[kind]):
        counts, chances = _alive(batch, alive[layer])
        checks = layer + 1 in ramps
        for count, chance in zip(counts, chances, strict=True):
            work += chance * times.share(kind, count) * ms
            work += chance * times.ramp_ms(kind, count) * checks
        work += (1 - alive[layer]) * profile.fill_ms[kind][layer]
        service += ms + profile.ramp_ms[kind] * checks
    return InDevice(work, service)


def _rule(times: StageTimes, kind: str) -> InDevice:
    """A layer runs for the whole batch unless each of its inputs has been sure before."""
    profile = times.profile
    work = service = times.batch_ms(kind, profile.batch)
    for layer, ms in enumerate(_asked_ms(profile, kind)):
        over = (1 - profile.survival[layer]) ** profile.batch
        work += (1 - over) * ms + over * profile.fill_ms[kind][layer]
        service += ms
    return InDevice(work, service)


def _regrouped(times: StageTimes, kind: str, cuts: Sequence[int]) -> InDevice:
    """Segments in turn, each for whole batches and so for a share of those that enter."""
    profile = times.profile
    alive, batch = profile.survival, profile.batch
    work = service = 0.0
    for first, end in zip((0, *cuts), (*cuts, profile.layers), strict=True):
        took = in_place_ms(times, kind, first, end, batch)
        filled = times.fill_ms(kind, first, end, (1 - alive[first]) * batch)
        work += alive[first] * took + filled
        service += took + filled
    return InDevice(work, service, tuple(alive[cut] for cut in cuts if alive[cut]))


def _asked_ms(profile: StageProfile, kind: str) -> list[float]:
    """Each layer of a whole batch, with the ramp behind it where one stands."""
    ramps, ramp = set(profile.ramps_before(profile.layers)), profile.ramp_ms[kind]
    return [ms + ramp * (n + 1 in ramps) for n, ms in enumerate(profile.layer_ms[kind])]


def _alive(batch: int, share: float) -> tuple[list[int], list[float]]:
    """Numbers alive of a batch, 1 or more, and how likely each is."""
    if batch > MOST_DRAWN or share >= 1:
        return ([round(batch * share)], [1.0]) if batch * share >= 0.5 else ([], [])
    if share <= 0:
        return [], []
    counts = np.arange(batch + 1)
    ways = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, batch + 1)))])
    likely = ways[-1] - ways - ways[::-1]
    likely = likely + counts * np.log(share) + (batch - counts) * np.log1p(-share)
    kept = np.flatnonzero(np.exp(likely[1:]) > 0) + 1
    return kept.tolist(), np.exp(likely[kept]).tolist()
