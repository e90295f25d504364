"""The search for the highest rate, against a queue whose capacity is known."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks.soundness.goodput_search import (
    QUEUES,
    SERVICE_S,
    SHARE,
    KnownQueue,
    capacity,
    searches,
)
from results.goodput.search import Probe, RateSearch, bracket_of, limited_by


@pytest.mark.parametrize("queue", QUEUES, ids=lambda one: one.name)
@pytest.mark.parametrize("objective", [2.0, 5.0])
def test_the_formula_is_the_queue_s(queue: KnownQueue, objective: float) -> None:
    """Crommelin's, and that of M/M/c, against a simulation of the same queue."""
    rng = np.random.default_rng(0)
    for load in (0.3, 0.7, 0.75):
        due_s, times_s = queue.sojourn(load / SERVICE_S, 200_000, rng)
        share = float((times_s <= objective * queue.service_s).mean())
        assert len(due_s) / due_s[-1] == pytest.approx(load / SERVICE_S, rel=0.02)
        assert share == pytest.approx(queue.within(load, objective), abs=0.01)


def settings(**changes: float) -> argparse.Namespace:
    usual = {"seeds": 4, "requests": 12_000, "share": SHARE, "tolerance": 0.05, "max_probes": 14}
    return argparse.Namespace(**{**usual, **changes})


def test_the_capacity_is_found_in_few_probes() -> None:
    one = searches(QUEUES[0], 4.0, settings(seeds=8))
    truth = capacity(4.0, SHARE) / SERVICE_S
    assert one["capacity_per_s"] == truth
    assert one["error"] < 0.03
    assert one["worst_error"] < 0.08
    assert one["probes"] < 14
    assert one["held_the_truth"] >= 7


@pytest.mark.parametrize("queue", QUEUES, ids=lambda one: one.name)
def test_intervals_of_short_probes_hold_the_capacity(queue: KnownQueue) -> None:
    """Of 95%: those from blocks of each probe's own hits and misses held it in every second."""
    short = settings(seeds=20, requests=100, share=0.95, tolerance=0.1, max_probes=8)
    one = searches(queue, queue.objectives[0], short)
    assert one["found"] == 20
    assert one["held_the_truth"] >= 17


def told(rate: float, limit: float) -> Probe:
    """Of a thousand requests few miss below the limit, and many above."""
    misses = 2 if rate <= limit else 400
    met = np.ones(1000, bool)
    met[:: 1000 // misses][:misses]
    met[np.linspace(0, 999, misses).astype(int)] = False
    return Probe(rate, rate, met)


@pytest.mark.parametrize("limit", [0.3, 7.0, 900.0])
def test_the_bracket_is_found_from_any_start(limit: float) -> None:
    done = RateSearch(0.99, start=10.0, most=30)
    while (rate := done.next_rate()) is not None:
        done.add(told(rate, limit))
    low, high = done.bracket()
    assert low is not None
    assert high is not None
    assert low <= limit < high <= 1.25 * low
    found = done.found()
    assert found is not None
    assert found.low <= found.rate <= found.high
    assert found.rate == pytest.approx(limit, rel=0.25)


def test_the_interval_is_no_narrower_than_what_was_tried() -> None:
    """A system that goes from all in time to none at one rate: between the two any is as likely."""
    limit = 10.8
    done = RateSearch(0.95, start=1.0, tolerance=0.05, most=20)
    while (rate := done.next_rate()) is not None:
        done.add(Probe(rate, rate, np.full(300, rate <= limit)))
        found = done.found()
        if found is not None:
            assert found.low <= limit <= found.high
    assert found is not None
    assert (found.high - found.low) / 2 <= 0.05 * found.rate
    assert len(done.probes) < 15


def test_the_search_ends_at_the_most_probes() -> None:
    done = RateSearch(0.99, start=1.0, most=4)
    while (rate := done.next_rate()) is not None:
        done.add(told(rate, 1e9))
    assert [probe.asked for probe in done.probes] == [1.0, 2.0, 4.0, 8.0]
    assert done.found() is None
    assert done.bracket() == (8.0, None)


def test_probes_of_one_rate_count_together() -> None:
    done = RateSearch(0.9, start=1.0)
    half = np.arange(100) % 5 > 0  # 80%
    done.add(Probe(2.0, 2.0, half))
    done.add(Probe(2.0, 2.0, np.ones(300, bool)))
    assert done.bracket() == (2.0, None), "95% of 400"


def test_the_bound_that_most_miss_limits() -> None:
    assert limited_by([("TTFT", 0.99), ("TPOT", 0.4)]) == "TPOT"
    assert limited_by([]) == ""


def test_a_stall_does_not_end_a_search_far_below_the_capacity() -> None:
    """Of 400 requests at the first rate five miss in a row; from 10 a second on a fifth does."""
    done = RateSearch(0.99, start=2.0)
    while (rate := done.next_rate()) is not None:
        met = np.ones(400, bool)
        if not done.probes:
            met[200:205] = False
        if rate > 10:
            met[::5] = False
        done.add(Probe(rate, rate, met))
    found = done.found()
    assert found is not None
    assert 9 < found.rate < 11
    assert found.high - found.low < 2.5


def test_a_probe_that_contradicts_the_others_widens_the_interval() -> None:
    """At 35 a second a tenth fails, and all are in time below it and above it: the rate went to
    half of the bracket, where no probe was that could say otherwise."""
    done = RateSearch(0.99, start=20.0)
    rates = (17.0, 17.5, 18.0, 20.0, 25.0, 30.0, 34.8, 35.0, 36.0, 50.0)
    for rate in rates:
        met = np.ones(2000, bool)
        if rate in (35.0, 50.0):
            met[:: 10 if rate == 35.0 else 2] = False
        done.add(Probe(rate, rate, met))
    assert done.bracket() == (34.8, 35.0)
    found = done.found()
    assert found is not None
    assert found.rate > 34.8 / 1.25
    assert found.high > 36 > found.low


def test_no_rate_counts_as_better_than_a_lower_one() -> None:
    at = [(1.0, 100.0, 100), (2.0, 98.0, 100), (3.0, 100.0, 100), (4.0, 90.0, 100)]
    assert bracket_of(at, 0.99) == (3.0, 4.0)
    assert bracket_of(at, 0.995) == (1.0, 2.0)
    assert bracket_of([*at, (2.0, 100.0, 100)], 0.993) == (3.0, 4.0)
    assert bracket_of(at[:1], 0.99) == (1.0, None)
    assert bracket_of(at[3:], 0.99) == (None, 4.0)
