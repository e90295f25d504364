"""The search for the highest rate, against a queue whose capacity is known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.soundness.goodput_search import (
    SERVICE_S,
    SHARE,
    capacity,
    search,
    sojourn,
    within,
)
from results.goodput.search import Probe, RateSearch, bracket_of, limited_by
from results.goodput.steady import warm_up


@pytest.mark.parametrize("objective", [2.0, 5.0])
def test_the_formula_is_the_queue_s(objective: float) -> None:
    """Crommelin's against a simulation of the same queue."""
    rng = np.random.default_rng(0)
    for load in (0.3, 0.7):
        times, rate = sojourn(load / SERVICE_S, 200_000, rng)
        share = float((times <= objective * SERVICE_S).mean())
        assert rate == pytest.approx(load / SERVICE_S, rel=0.02)
        assert share == pytest.approx(within(load, objective), abs=0.01)


def test_the_capacity_is_found_in_few_probes() -> None:
    truth = capacity(4.0, SHARE) / SERVICE_S
    inside = 0
    for seed in range(4):
        done = search(4.0, seed, 12_000)
        found = done.found()
        assert found is not None
        assert found.rate == pytest.approx(truth, rel=0.06)
        assert len(done.probes) < 15
        inside += found.low <= truth <= found.high
    assert inside >= 3


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


def test_the_warm_up_is_cut_and_no_more() -> None:
    rng = np.random.default_rng(1)
    steady = 1 + 0.1 * rng.normal(size=1000)
    assert warm_up(steady) <= 100
    begun = steady.copy()
    begun[:200] += np.linspace(5, 0, 200)
    assert 120 <= warm_up(begun) <= 260
    assert warm_up(np.ones(7)) == 0
    assert warm_up(np.ones(1000)) == 0


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


def test_no_rate_counts_as_better_than_a_lower_one() -> None:
    at = [(1.0, 100.0, 100), (2.0, 98.0, 100), (3.0, 100.0, 100), (4.0, 90.0, 100)]
    assert bracket_of(at, 0.99) == (3.0, 4.0)
    assert bracket_of(at, 0.995) == (1.0, 2.0)
    assert bracket_of([*at, (2.0, 100.0, 100)], 0.993) == (3.0, 4.0)
    assert bracket_of(at[:1], 0.99) == (1.0, None)
    assert bracket_of(at[3:], 0.99) == (None, 4.0)
