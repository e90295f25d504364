"""Rates from idle to saturation, against queues whose capacity is known, in virtual time."""

from __future__ import annotations

import heapq
import itertools
import math

import numpy as np
import pytest

from benchmarks.soundness.kept_up import SYSTEMS, share_of_no
from results.goodput.saturation import (
    NEAR,
    CurvePoint,
    LoadCurve,
    kept_up,
    probe_requests,
)
from results.metrics.arrays import Ints

SERVICE_NS = 20_000_000


def queue(
    rate: float, count: int, servers: int, seed: int, *, exact: bool = False
) -> tuple[Ints, Ints]:
    """When requests arrive at, and leave, an M/D/c queue; `exact`: at that rate over the load."""
    gaps = np.random.default_rng(seed).exponential(1e9 / rate, count)
    if exact:
        gaps *= (count - 1) * 1e9 / rate / gaps[1:].sum()
    arrived = np.cumsum(gaps).astype(np.int64)
    free = [0] * servers
    left = []
    for moment in arrived:
        begin = max(int(moment), heapq.heappop(free))
        left.append(begin + SERVICE_NS)
        heapq.heappush(free, left[-1])
    return arrived, np.array(left, np.int64)


@pytest.mark.parametrize("servers", [1, 4, 32])
@pytest.mark.parametrize(
    ("load", "least", "most"), [(0.2, 1, 1), (0.6, 0.99, 1), (1.4, 0, 0.04), (2.0, 0, 0)]
)
def test_a_queue_grows_only_beyond_its_capacity(
    servers: int, load: float, least: float, most: float
) -> None:
    rate = load * servers / (SERVICE_NS / 1e9)
    count = probe_requests(60, rate, SERVICE_NS / 1e9)
    kept = [kept_up(*queue(rate, count, servers, seed)) for seed in range(100)]
    assert least <= sum(kept) / len(kept) <= most


@pytest.mark.parametrize("servers", [1, 4, 32])
@pytest.mark.parametrize(("load", "least", "most"), [(0.9, 0.97, 1), (1.2, 0, 0.07)])
def test_near_the_capacity_the_rate_that_came_about_is_judged(
    servers: int, load: float, least: float, most: float
) -> None:
    """Which is what a sweep tells: so chance is in the gaps alone, and not in how long it lasts."""
    rate = load * servers / (SERVICE_NS / 1e9)
    count = probe_requests(60, rate, SERVICE_NS / 1e9)
    kept = [kept_up(*queue(rate, count, servers, seed, exact=True)) for seed in range(100)]
    assert least <= sum(kept) / len(kept) <= most


def test_an_engine_that_is_slower_the_more_it_does_keeps_up_all_the_same() -> None:
    """Latency grows with what is under way until that is as it will stay; no queue does."""
    system = SYSTEMS["engine"]
    for load, least, most in ((0.9, 0.9, 1), (1.2, 0, 0.15), (1.4, 0, 0)):
        no = share_of_no(system, load, came=True, series=100, least=60)
        assert least <= 1 - no <= most, load


def searched(servers: int, seed: int, most: int = 16) -> LoadCurve:
    curve = LoadCurve(0.5e9 / SERVICE_NS, most)
    for number in itertools.count():
        if (rate := curve.next_rate()) is None:
            return curve
        count = probe_requests(600, rate, SERVICE_NS / 1e9)
        arrived, left = queue(rate, count, servers, 100 * seed + number)
        latency_s = float(np.median(left - arrived)) / 1e9
        curve.add(CurvePoint(rate, latency_s, kept_up(arrived, left)))
    raise AssertionError


@pytest.mark.parametrize("servers", [1, 8])
def test_the_curve_reaches_from_idle_to_saturation(servers: int) -> None:
    capacity = servers / (SERVICE_NS / 1e9)
    for seed in range(3):
        curve = searched(servers, seed)
        low, high = curve.bracket()
        assert low is not None
        assert high is not None
        assert high / low <= NEAR * 1.0001
        assert 0.75 * capacity < low < high < 1.4 * capacity
        rates = sorted(point.rate for point in curve.points)
        assert len(set(rates)) == len(rates) == 16
        assert rates[0] == 0.5e9 / SERVICE_NS
        below = [rate for rate in rates if rate <= high]
        assert max(b / a for a, b in itertools.pairwise(below)) <= 2


def told(limit: float, most: int, start: float) -> list[float]:
    curve = LoadCurve(start, most)
    while (rate := curve.next_rate()) is not None:
        curve.add(CurvePoint(rate, 1 / max(limit - rate, 0.1), rate <= limit))
    return [point.rate for point in curve.points]


def test_rates_double_then_halve_the_gap() -> None:
    assert told(5.0, 5, 1.0)[:4] == [1.0, 2.0, 4.0, 8.0]
    assert told(5.0, 5, 1.0)[4] == pytest.approx(math.sqrt(32))
    # a start beyond saturation goes down
    assert told(1.0, 3, 8.0) == [8.0, 4.0, 2.0]


def test_a_stall_does_not_pass_for_saturation() -> None:
    curve = LoadCurve(2.0, 12)
    while (rate := curve.next_rate()) is not None:
        curve.add(CurvePoint(rate, 0.1, rate <= 10 and bool(curve.points)))
    low, high = curve.bracket()
    assert low is not None
    assert high is not None
    assert low <= 10 < high < 1.2 * low


def test_answers_that_never_came_leave_no_gap_infinite() -> None:
    curve = LoadCurve(1.0, 9)
    late = ((2.0, math.nan, False), (2.1, math.nan, False))
    for rate, latency_s, kept in ((1.0, 0.1, True), *late, (1.9, 0.2, True)):
        curve.add(CurvePoint(rate, latency_s, kept))
    assert curve.next_rate() == pytest.approx(math.sqrt(1.9))


def test_what_never_leaves_and_what_is_too_little_to_say() -> None:
    arrived = np.arange(100, dtype=np.int64) * 1000
    assert kept_up(arrived, arrived + 10)
    assert not kept_up(arrived, arrived[:50] + 10), "the second half failed"
    assert kept_up(arrived[:7], arrived[:0])
    assert probe_requests(40, 100.0, 2.0) == 1800
    assert probe_requests(40, 1.0, 2.0) == 100
    assert probe_requests(40, 0.1, 2.0) == 40
