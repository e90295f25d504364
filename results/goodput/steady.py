"""The part of a probe in which the system was in its steady state."""

from __future__ import annotations

import math

import numpy as np

from results.metrics.arrays import Floats

MOST = 0.25
"""The share of a probe that may be left out at its beginning, and at its end."""


def after_the_first(due_s: Floats, times_s: Floats) -> int:
    """How many of the first observations are to be left out: those that came within the time that
    an answer takes, to a system that was filling. A cut that looks at what it cuts (MSER-5) leaves
    out bursts of misses with the beginning: of short probes too many seemed to hold.

    Args:
        due_s: (n,) when requests came, in this order.
        times_s: (n,) how long they took, finite.
    """
    if not len(due_s):
        return 0
    left = int(np.searchsorted(due_s, due_s[0] + np.median(times_s)))
    return min(left, math.floor(MOST * len(due_s)))


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
    return max(kept, math.ceil((1 - MOST) * len(due_s)))
