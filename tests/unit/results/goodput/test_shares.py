"""Intervals of shares of requests that wait together."""

from __future__ import annotations

import numpy as np
import pytest

from results.goodput.shares import share_interval


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
