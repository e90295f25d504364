"""Which rates show a system from idle to saturation, and whether it kept up with one of them.

Rates are doubled (or halved) until the system keeps up with one and not with another; that gap is
bisected until its ends are near each other, and then the gaps between all points, each time the one
across which rate and latency change most. So points stand where the curve bends, whatever the
scale of the system.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from results.goodput.search import STEP, bracket_of
from results.metrics.arrays import Ints

NEAR = 1.15
"""Saturation is known when the rates on its two sides are within this factor."""
GROWS = 0.1
"""Of the arrivals: by so much has a queue to grow."""
MANY = 100
FEWEST = 8
"""Requests of which anything can be said."""
PASSES = 6
"""A probe lasts at least so many answers of an idle system: what is on its way is no queue."""


class CurvePoint(NamedTuple):
    """What came of one rate."""

    rate: float
    """Requests per second, as asked for."""
    latency_s: float
    """The median of whole answers; NaN where none came."""
    kept_up: bool


@dataclass(slots=True)
class LoadCurve:
    """Tells which rate to try next, until there are points enough.

    Args:
        start: the first rate, at which the system is nearly idle.
        most: points.
    """

    start: float
    most: int
    points: list[CurvePoint] = field(default_factory=list)

    def add(self, point: CurvePoint) -> None:
        """What the last rate came to."""
        self.points.append(point)

    def next_rate(self) -> float | None:
        """The rate to try next; None when there are points enough."""
        if len(self.points) >= self.most:
            return None
        if not self.points:
            return self.start
        low, high = self.bracket()
        if high is None:
            assert low is not None
            return low * STEP
        if low is None:
            return high / STEP
        if high / low > NEAR:
            return math.sqrt(low * high)
        return self._widest_gap()

    def bracket(self) -> tuple[float | None, float | None]:
        """The greatest rate that was kept up with below all that were not, and the least that was
        not: saturation lies between."""
        return bracket_of({point.rate: point.kept_up for point in self.points})

    def _widest_gap(self) -> float:
        """The middle of the two neighbours across which rate and latency change most; beyond
        saturation latency only tells how long the probe lasted."""
        _, high = self.bracket()
        inside = sorted(p for p in self.points if high is None or p.rate <= high)
        widest = max(itertools.pairwise(inside), key=lambda pair: _change(*pair))
        return math.sqrt(widest[0].rate * widest[1].rate)


def _change(one: CurvePoint, other: CurvePoint) -> float:
    change = abs(math.log(other.latency_s / one.latency_s))
    return math.log(other.rate / one.rate) + (change if math.isfinite(change) else 0.0)


def kept_up(arrived_ns: Ints, left_ns: Ints) -> bool:
    """Whether as many left as came under an open load: the mean number in the system over its last
    quarter may exceed that over its second quarter by `GROWS` of what arrived between the two, or
    by what chance explains, for which one deviation of a Poisson count is taken: exact for M/G/inf.
    A single server's queue varies more near its capacity (M/M/1: by its mean), so that with 100
    requests one time in five to ten says no at 0.9 of it, and one in three yes at 1.2.

    Args:
        arrived_ns: (R,) when each request was due.
        left_ns: (K,) when each answer was whole; K < R where some failed or were never answered,
            which therefore do not leave.
    """
    if len(arrived_ns) < FEWEST:
        return True
    first, last = int(arrived_ns.min()), int(arrived_ns.max())
    ends = [first + (last - first) * place / 4 for place in range(5)]

    def inside(quarter: int) -> float:
        begin, end = ends[quarter], ends[quarter + 1]
        spent = [np.clip(end - np.maximum(t, begin), 0, None).sum() for t in (arrived_ns, left_ns)]
        return float(spent[0] - spent[1]) / max(end - begin, 1.0)

    before, after = inside(1), inside(3)
    came = len(arrived_ns) / 2  # between the middles of the two
    return after - before <= max(GROWS * came, math.sqrt(max(before, 1.0)))


def probe_requests(least: int, rate: float, alone_s: float) -> int:
    """How many requests a probe needs, at least `least`: arrivals have to go on for `PASSES`
    answers of an idle system, which take `alone_s` each, and from one of them at a time on there
    have to be `MANY`, below which chance decides."""
    at_once = rate * alone_s
    return max(least, math.ceil(max(PASSES * at_once, MANY * min(at_once, 1.0))))
