"""The part of a probe in which the system was in its steady state."""

from __future__ import annotations

import math

import numpy as np

from results.metrics.arrays import Floats

BATCH = 5
"""Observations whose mean is one, against their noise."""
MOST_LAST = 0.25
"""The share of a probe that may be left out at its end."""


def warm_up(values: Floats) -> int:
    """How many of the first observations are to be left out: MSER-5 (White 1997; White, Cobb and
    Spratt 2000). The cut is where the standard error of the mean of the rest, were they
    independent, is least, among those in the first half.

    Args:
        values: (n,) in the order of arrival, finite.
    """
    count = len(values) // BATCH
    if count < 2:
        return 0
    means = np.asarray(values[: count * BATCH], float).reshape(count, BATCH).mean(1)
    sizes = np.arange(count, 0, -1)
    sums = means[::-1].cumsum()[::-1]
    squares = (means**2)[::-1].cumsum()[::-1]
    errors = np.maximum(squares - sums**2 / sizes, 0) / sizes.astype(float) ** 2
    return BATCH * int(errors[: count // 2].argmin())


def before_the_last(due_s: Floats, times_s: Floats) -> int:
    """How many of the first observations are to be kept: those after whom requests came for as long
    as an answer takes. While no more come a system empties, and answers the others sooner than any
    steady load would have let it.

    Args:
        due_s: (n,) when requests came, in this order.
        times_s: (n,) how long they took, finite.
    """
    if not len(due_s):
        return 0
    kept = int(np.searchsorted(due_s, due_s[-1] - np.median(times_s), side="right"))
    return max(kept, math.ceil((1 - MOST_LAST) * len(due_s)))
