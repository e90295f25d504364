"""What a rate costs: devices, their price, and the time that planning them takes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping
from functools import cache

import numpy as np

from backends.tetris.figures.goodput import PIPELINE, one_device
from backends.tetris.figures.point import FigurePoint
from backends.tetris.planner import plan, plan_or_none
from backends.tetris.profile import DeviceCluster, Wanted
from harness.core.errors import UserError

MOST_MIXED = 1_000_000
"""Of ways to mix devices that are all tried."""
TIGHT = 0.7
"""Of the latency of the plan with the highest goodput."""


def devices_needed(point: FigurePoint, system: str, rate: float) -> float | None:
    """The fewest devices of a cluster of one kind that keep up with a rate, None where all of them
    do not: a pipeline's cheapest plan, or whole devices that each run the model."""
    each = dict.fromkeys(point.model.devices, 1.0)
    count = _least(point, system, rate, tuple(each.items()))
    return None if count is None else float(round(count))


def least_price(point: FigurePoint, system: str, rate: float) -> float | None:
    """The least price an hour of what keeps up with a rate, None where nothing does."""
    prices = ((kind, device.price) for kind, device in point.model.devices.items())
    return _least(point, system, rate, tuple(prices))


@cache
def _least(
    point: FigurePoint, system: str, rate: float, prices: tuple[tuple[str, float], ...]
) -> float | None:
    (cluster,), (batch,) = point.clusters, point.batches
    price = {kind: value for kind, value in prices if kind in dict(cluster)}
    if system == PIPELINE:
        there = DeviceCluster(dict(cluster), price)
        wanted = Wanted(point.slo_ms, target=rate)
        found = plan_or_none(point.profile(batch, staged=True), there, wanted)
        return None if found is None else found.cost
    per_s = {kind: one_device(point, system, kind, batch) for kind, _ in cluster}
    least = cheapest_mix(per_s, price, rate, dict(cluster))
    return None if math.isinf(least) else least


def cheapest_mix(
    per_s: Mapping[str, float],
    price: Mapping[str, float],
    rate: float,
    there: Mapping[str, int],
) -> float:
    """Of whole devices, of each kind as many as there are, that reach the rate together; infinite
    where all of them do not. Raises `UserError` for too many ways to mix them."""
    some = [kind for kind in per_s if per_s[kind]]
    if not some:
        return math.inf
    first, *others = sorted(some, key=lambda kind: price[kind] / per_s[kind])
    most = [min(math.ceil(rate / per_s[kind]), there[kind]) + 1 for kind in others]
    if math.prod(most) > MOST_MIXED:
        told = f"{sum(there.values()):,} devices of {len(there)} kinds: too many to mix at once"
        raise UserError(f"{told}; expected an equal part of the cluster and of the rate")
    counts = np.indices(most).reshape(len(most), math.prod(most))
    rest = rate - np.asarray([per_s[kind] for kind in others]) @ counts
    needed = np.maximum(np.ceil(rest / per_s[first]), 0)
    cost = needed * price[first] + np.asarray([price[kind] for kind in others]) @ counts
    return float(np.min(cost[needed <= there[first]], initial=math.inf))


def planning_ms(point: FigurePoint) -> float | None:
    """Processor time of the slowest of four questions on this machine: the highest goodput, that
    within 0.7 of its latency, and the least cost of half of it, at either latency. None where no
    plan meets the SLO."""
    ((cluster,), (batch,)) = point.clusters, point.batches
    profile, there = point.profile(batch, staged=True), point.model.cluster(dict(cluster))
    begin = time.process_time()
    found = plan_or_none(profile, there, Wanted(point.slo_ms))
    if found is None:
        return None
    took = [time.process_time() - begin]
    tight_ms, half = TIGHT * found.latency_ms, found.goodput_per_s / 2
    for wanted in (
        Wanted(tight_ms),
        Wanted(point.slo_ms, target=half),
        Wanted(tight_ms, target=half),
    ):
        begin = time.process_time()
        with contextlib.suppress(UserError):  # that there is none was found out, too
            plan(profile, there, wanted)
        took.append(time.process_time() - begin)
    return 1e3 * max(took)
