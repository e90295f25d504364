"""The speed-up's interval as it was before `results.compare.intervals.crossed`: a bootstrap over
repeats and requests, kept to set the present one against.

Each replicate draws repeats and then one set of requests for all of them (the pigeonhole bootstrap:
Owen 2007, Annals of Applied Statistics 1:386, section 4), with R - 1 of R repeats drawn (Rao and Wu
1988, Journal of the American Statistical Association 83:231).
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
SEED = 20260101
Floats = NDArray[np.float64]


def bootstrap_bounds(logs: Floats, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of the mean of (repeats, requests) `logs`, none missing. Deterministic:
    the draws depend on the shape of the data only."""
    repeats, requests = logs.shape
    size = max(1, repeats - 1)
    of_repeats = draws(repeats, size, SEED + 1)
    of_requests = draws(requests, requests, SEED)
    sums = np.einsum("rq,qn->rn", logs, of_requests)
    means = (sums * of_repeats).sum(axis=0) / (size * requests)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@functools.lru_cache(maxsize=8)
def draws(count: int, size: int, seed: int) -> Floats:
    """(count, `RESAMPLES`) how often each of `count` items is drawn in `size` draws."""
    generator = np.random.default_rng([seed, count, size])
    picks = generator.integers(0, count, (RESAMPLES, size))
    return np.array([np.bincount(row, minlength=count) for row in picks], float).T.copy()
