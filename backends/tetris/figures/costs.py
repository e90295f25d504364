"""What a rate costs: devices, their price, and the time that planning them takes."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Mapping
from functools import cache

from backends.tetris.figures.goodput import PIPELINE, one_device
from backends.tetris.figures.point import FigurePoint
from backends.tetris.planner import plan, plan_or_none
from backends.tetris.profile import DeviceCluster, Wanted
from harness.core.errors import UserError

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
    where all of them do not."""
    some = [kind for kind in per_s if per_s[kind]]
    kinds = sorted(some, key=lambda kind: price[kind] / per_s[kind])
    most = [range(min(math.ceil(rate / per_s[kind]), there[kind]) + 1) for kind in kinds[1:]]
    least = math.inf
    for counts in itertools.product(*most) if kinds else ():
        rest = rate - sum(n * per_s[kind] for n, kind in zip(counts, kinds[1:], strict=True))
        first = max(math.ceil(rest / per_s[kinds[0]]), 0)
        if first > there[kinds[0]]:
            continue
        every = zip((first, *counts), kinds, strict=True)
        least = min(least, sum(n * price[kind] for n, kind in every))
    return least


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
