"""The bootstrap that the present interval is set against is the one described."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.support.intervals.bootstrap import RESAMPLES, SEED, bootstrap_bounds


def test_the_bootstrap_is_the_one_described() -> None:
    """Replicate by replicate in plain Python: R - 1 repeats drawn of R, then one set of requests
    for all of them, from two streams of their own."""
    logs = np.random.default_rng(5).normal(0.3, 0.2, (3, 9))
    for matrix in (logs, logs[:1]):
        repeats, requests = matrix.shape
        size = max(1, repeats - 1)
        of_repeats = np.random.default_rng([SEED + 1, repeats, size])
        of_requests = np.random.default_rng([SEED, requests, requests])
        drawn = zip(
            of_repeats.integers(0, repeats, (RESAMPLES, size)),
            of_requests.integers(0, requests, (RESAMPLES, requests)),
            strict=True,
        )
        means = [matrix[np.ix_(rows, columns)].mean() for rows, columns in drawn]
        expected = np.percentile(means, [2.5, 97.5])
        assert bootstrap_bounds(matrix) == pytest.approx(tuple(expected))


def test_of_two_repeats_one_is_drawn() -> None:
    """So that the spread between repeats is unbiased: of two steady repeats each is half of all
    replicates. Drawing both would give their mean in every second one."""
    found = bootstrap_bounds(np.array([[0.0] * 8, [1.0] * 8]), level=0.4)
    assert found == pytest.approx((0.0, 1.0))
