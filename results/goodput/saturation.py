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
WAITS = 0.09
"""Of the time in which requests came: answers are so much later at its end than when the system was
nearly idle. A queue in front of one that is asked for 1.1 times its capacity grows by 0.1 of that
time."""
STILL = 0.04
"""Of that time: answers that come no later at its end than this beyond those of its second quarter
wait in no queue that grows. A system that works on many at once answers each more slowly."""
HALF = 0.5
"""Of neighbouring rates: where more load was kept up with, so was less."""
ONCE_MORE = 1.02
"""Times a rate that was not kept up with: it is tried once more."""
MANY = 100
FEWEST = 8
"""Requests of which anything can be said."""
PASSES = 9
"""A probe lasts at least so many answers of an idle system: what is on its way is no queue. An
engine that works on many at once answers each some three times as slowly when it is full, and on
the way there its latency grows at rates that it keeps up with, too."""


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
        if sum(high <= point.rate <= high * NEAR for point in self.points) < 2:
            return high * ONCE_MORE
        return self._widest_gap()

    def bracket(self) -> tuple[float | None, float | None]:
        """The greatest rate that was kept up with, and the least that was not, where one that was
        not counts with higher ones that were: saturation lies between."""
        return bracket_of([(p.rate, float(p.kept_up), 1) for p in self.points], HALF)

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
    """Whether as many left as came under an open load, by how far the departures are behind the
    arrivals: the k-th to leave behind the k-th to come, the median over a quarter of the requests.
    That grows by more than `WAITS` of the load's duration from its least tenth to the last quarter
    and, taken twice since half a load lies between, by more than `STILL` from the second quarter to
    the last, where the system does not keep up. It is the rate that came about that is judged: how
    many came by chance changes how long the load lasts, and so both sides.

    Args:
        arrived_ns: (R,) when each request was due.
        left_ns: (K,) when each answer was whole; K < R where some failed or were never answered,
            which therefore do not leave.
    """
    count = len(arrived_ns)
    if count < FEWEST:
        return True
    arrived, left = np.sort(arrived_ns), np.sort(left_ns)
    lasted = max(float(arrived[-1] - arrived[0]), 1.0)
    behind = np.ones(count)  # as if whoever never leaves had waited all the time
    behind[: len(left)] = (left - arrived[: len(left)]) / lasted
    quarters = np.array_split(behind, 4)
    last = float(np.median(quarters[3]))
    waits = last - float(np.quantile(behind, 0.1))
    grows = 2 * (last - float(np.median(quarters[1])))
    return waits <= WAITS or grows <= STILL


def probe_requests(least: int, rate: float, alone_s: float) -> int:
    """How many requests a probe needs, at least `least`: arrivals have to go on for `PASSES`
    answers of an idle system, which take `alone_s` each, and from one of them at a time on there
    have to be `MANY`, below which chance decides."""
    at_once = rate * alone_s
    return max(least, math.ceil(max(PASSES * at_once, MANY * min(at_once, 1.0))))
