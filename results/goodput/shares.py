"""The interval of a share of requests that are not independent of each other."""

from __future__ import annotations

import math

import numpy as np

from results.compare.intervals.wilson import wilson_interval
from results.metrics.arrays import Flags, Floats


def share_interval(
    met: Flags, confidence: float, waits: Floats | None = None
) -> tuple[float, float]:
    """Wilson's interval (1927) at an effective number of requests.

    Args:
        met: (n,) in the order of arrival.
        confidence: between 0 and 1.
        waits: see `effective_number`.
    """
    if not len(met):
        return 0.0, 1.0
    return wilson_interval(float(met.mean()), effective_number(met, waits), confidence)


def effective_number(met: Flags, waits: Floats | None = None) -> float:
    """As how many independent requests so many count: neighbours wait for the same queue, so that
    n of them say less than n draws.

    Args:
        met: (n,) in the order of arrival, n > 0.
        waits: (n,) what is behind `met`, so that a probe in which nobody misses tells it, too. Of
            failures `met` alone tells it: the greater inefficiency counts.
    """
    told = [_inefficiency(np.asarray(one, float)) for one in (met, waits) if one is not None]
    return len(met) / min(max(told), len(met))


def _inefficiency(values: Floats) -> float:
    """The integrated autocorrelation, at least 1: the greater of that of an autoregression of order
    one, without its bias in short series (Kendall 1954), and of the initial monotone sequence
    (Geyer 1992), which sees through noise that is each value's own."""
    n = len(values)
    if n < 4 or values.min() == values.max():  # the mean of equal ones may be off by rounding
        return 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        apart = values - values.mean()
        square = float(apart @ apart)
    if not 0 < square < math.inf:  # so small or large that no correlation can be told
        return 1.0
    first = float(apart[1:] @ apart[:-1]) / square
    first = min(first + (1 + 3 * first) / n, 1 - 1 / n)
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(apart, size)) ** 2
    lagged = np.fft.irfft(spectrum, size)[: n // 4 * 2] / square
    pairs = lagged.reshape(-1, 2).sum(1)
    ends = np.flatnonzero(pairs <= 0)
    pairs = np.minimum.accumulate(pairs[: ends[0] if len(ends) else len(pairs)])
    return max(1.0, (1 + first) / (1 - first), 2 * float(pairs.sum()) - 1)
