"""The part of a probe in which the system was in its steady state."""

from __future__ import annotations

import numpy as np

from results.metrics.arrays import Floats

BATCH = 5
"""Observations whose mean is one, against their noise."""


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
