"""Every plan of a small instance, written out: what the planner's answers are held against."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from backends.tetris.profile import DeviceCluster, StageProfile, Wanted

NEAR = 1e-9


@dataclass(frozen=True)
class WrittenPlan:
    goodput_per_s: float
    latency_ms: float
    cost: float


def every_plan(
    profile: StageProfile, cluster: DeviceCluster, rate: float | None
) -> Iterator[WrittenPlan]:
    for number in range(profile.layers):
        for cuts in itertools.combinations(profile.ramps_before(profile.layers), number):
            yield from plans_with(cuts, profile, cluster, rate)


def plans_with(
    cuts: tuple[int, ...], profile: StageProfile, cluster: DeviceCluster, rate: float | None
) -> Iterator[WrittenPlan]:
    """Those with exactly these cuts."""
    if any(profile.survival[cut] == 0 for cut in cuts):
        return
    spans = list(itertools.pairwise((0, *cuts, profile.layers)))
    choices = [(k, m) for k, n in cluster.devices.items() for m in range(1, n + 1)]
    for placed in itertools.product(choices, repeat=len(spans)):
        used = dict.fromkeys(cluster.devices, 0)
        for kind, many in placed:
            used[kind] += many
        if all(used[kind] <= cluster.devices[kind] for kind in used):
            yield one_plan(profile, cluster, rate, spans, placed)


def one_plan(
    profile: StageProfile,
    cluster: DeviceCluster,
    rate: float | None,
    spans: list[tuple[int, int]],
    placed: tuple[tuple[str, int], ...],
) -> WrittenPlan:
    cycles = []
    for first, _ in spans[1:]:
        fills = any(fill > 0 for kind in cluster.devices for fill in profile.fill_ms[kind][first:])
        cycles.append(profile.transfer_ms[first] * (1 if fills else profile.survival[first]))
    inside = 0.0
    for (first, end), (kind, many) in zip(spans, placed, strict=True):
        alive = profile.survival[first]
        layers = sum(profile.layer_ms[kind][first:end])
        if end < profile.layers:
            layers += profile.ramp_ms[kind]
        outside = profile.batch_ms if len(spans) == 1 else profile.stage_ms
        if kind in outside:
            layers += outside[kind][-1][1]
        if first == 0 and len(spans) > 1 and kind in profile.enter_ms:
            layers += profile.enter_ms[kind][-1][1]
        fill = (1 - alive) * sum(profile.fill_ms[kind][first:end])
        cycles.append((alive * layers + fill) / many)
        inside += layers + fill
    cycle = max(cycles) if rate is None else max(*cycles, 1e3 * profile.batch / rate)
    waits = cycle + sum(
        cycle / profile.survival[first] + profile.transfer_ms[first] for first, _ in spans[1:]
    )
    cost = sum(cluster.price[kind] * many for kind, many in placed)
    return WrittenPlan(1e3 * profile.batch / cycle, inside + waits, cost)


def good_plans(profile: StageProfile, cluster: DeviceCluster, wanted: Wanted) -> list[WrittenPlan]:
    """Those within budget and SLO that reach the target, if there is one."""
    return wished(every_plan(profile, cluster, wanted.rate), wanted)


def wished(plans: Iterable[WrittenPlan], wanted: Wanted) -> list[WrittenPlan]:
    """Of plans those within budget and SLO that reach the target, if there is one."""
    return [
        one
        for one in plans
        if one.latency_ms + wanted.slack_ms <= wanted.slo_ms * (1 + NEAR)
        and (wanted.budget is None or one.cost <= wanted.budget * (1 + NEAR))
        and (wanted.target is None or one.goodput_per_s >= wanted.target * (1 - NEAR))
    ]
