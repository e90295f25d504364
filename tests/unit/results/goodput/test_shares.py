"""Intervals of shares of requests that wait together."""

from __future__ import annotations

import numpy as np
import pytest

from results.goodput.shares import effective_number, share_interval


def test_of_independent_requests_it_is_wilson_s() -> None:
    # every block has one miss of ten: no more variance than of independent ones
    met = np.tile([True] * 9 + [False], 20)
    low, high = share_interval(met, 0.95)
    # by hand: n 200, p 0.9, z 1.96
    assert (low, high) == pytest.approx((0.8506, 0.9343), abs=1e-4)


def test_a_burst_of_misses_counts_as_few() -> None:
    scattered, burst = np.ones(200, bool), np.ones(200, bool)
    scattered[::10] = False
    burst[100:120] = False
    widths = [np.diff(share_interval(met, 0.95))[0] for met in (scattered, burst)]
    assert widths[1] > 2 * widths[0]


def test_no_miss_is_not_certainty_and_nothing_is_anything() -> None:
    low, high = share_interval(np.ones(100, bool), 0.95)
    assert (low, high) == pytest.approx((0.9630, 1.0), abs=1e-4)
    assert share_interval(np.ones(0, bool), 0.95) == (0.0, 1.0)


def test_correlated_waits_count_as_few_requests() -> None:
    """Of an autoregression of order one n values are worth n (1 - a) / (1 + a) draws."""
    rng = np.random.default_rng(0)
    met, waits = np.ones(20_000, bool), np.empty(20_000)
    shocks = rng.normal(size=len(waits))
    for factor in (0.0, 0.5, 0.9):
        waits[0] = shocks[0]
        for place in range(1, len(waits)):
            waits[place] = factor * waits[place - 1] + shocks[place]
        number = effective_number(met, waits)
        assert number == pytest.approx(len(waits) * (1 - factor) / (1 + factor), rel=0.15)


def test_a_slow_wave_under_noise_of_each_answer_s_own_is_seen() -> None:
    """The correlation of neighbours alone is small here."""
    rng = np.random.default_rng(0)
    wave = np.repeat(rng.normal(size=100), 100)
    waits = wave + 2 * rng.normal(size=len(wave))
    assert effective_number(np.ones(len(wave), bool), waits) < 0.2 * len(wave)


def test_where_nobody_misses_waits_tell_how_little_is_known() -> None:
    met = np.ones(100, bool)
    least, _ = share_interval(met, 0.95, np.linspace(0.1, 0.9, 100))
    assert least < share_interval(met, 0.95)[0] - 0.2


@pytest.mark.parametrize("wait", [0.1, 0.3, 0.7, 2.3])
@pytest.mark.parametrize("count", [100, 400, 1000])
def test_equal_waits_are_as_many_as_they_are(wait: float, count: int) -> None:
    """The mean of equal numbers is often off by rounding, all by the same."""
    assert effective_number(np.ones(count, bool), np.full(count, wait)) == count


def test_a_burst_of_failures_counts_as_few_whatever_the_waits_say() -> None:
    """Who was refused did not wait."""
    met, waits = np.ones(2000, bool), np.random.default_rng(0).random(2000)
    met[np.arange(2000) % 1000 < 20] = False
    assert effective_number(met, waits) == effective_number(met) < 200


@pytest.mark.parametrize("times", [1e-200, 1e300])
def test_waits_whose_squares_no_float_holds_tell_nothing(times: float) -> None:
    """They were divided by a square of 0."""
    waits = times * np.linspace(0.1, 0.9, 100)
    assert effective_number(np.ones(100, bool), waits) == 100
