"""The interval of a share of requests that are not independent of each other."""

from __future__ import annotations

from results.compare.intervals.wilson import wilson_interval
from results.metrics.arrays import Flags

BLOCKS = 20
"""Of a probe's requests, consecutive ones in each."""


def share_interval(met: Flags, confidence: float) -> tuple[float, float]:
    """Wilson's interval (1927) at an effective number of requests: neighbours wait for the same
    queue, so that n of them say less than n draws. By how much less is from the variance of the
    means of blocks of consecutive ones (batch means, Conway 1963).

    Args:
        met: (n,) in the order of arrival.
        confidence: between 0 and 1.
    """
    n = len(met)
    if not n:
        return 0.0, 1.0
    share = float(met.mean())
    size = max(1, n // BLOCKS)
    means = met[: n // size * size].reshape(-1, size).mean(1)
    inflation = 1.0
    if 0 < share < 1 and len(means) > 1:
        inflation = max(1.0, size * float(means.var(ddof=1)) / (share * (1 - share)))
    return wilson_interval(share, n / inflation, confidence)
