"""The part of a probe in which the system was in its steady state."""

from __future__ import annotations

import math

import numpy as np

from results.goodput.search import Probe
from results.metrics.arrays import Flags, Floats

MOST = 0.25
"""The share of a probe that may be left out at its beginning, and at its end."""


def steady_probe(asked: float, due_s: Floats, times_s: Floats, met: Flags, waits: Floats) -> Probe:
    """A probe without its beginning and its end, at the rate at which the rest came.

    Args:
        asked: requests per second.
        due_s: (n,) when requests came, in this order.
        times_s: (n,) how long they took, finite.
        met: (n,) whether they met the objective.
        waits: (n,) see `Probe`.
    """
    steady = slice(after_the_first(due_s, times_s), before_the_last(due_s, times_s))
    due_s = due_s[steady]
    came_s = float(due_s[-1] - due_s[0]) if len(due_s) else 0.0
    rate = (len(due_s) - 1) / came_s if came_s > 0 else asked
    return Probe(asked, rate, met[steady], waits[steady])


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
