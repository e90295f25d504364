"""Searches the highest rate at which a share of the requests meets the objective.

Rates are doubled (or halved) until one holds and one does not; then the next rate is where a model
of all probes so far has the wanted share, kept inside the bracket; at last probes go to that rate
itself, until its interval is narrow. A rate that did not hold is tried once more, and is taken
together with higher ones that hold (isotonic regression: more load does not help), so that one
stall does not end a search far below the capacity. The model: the logit of the share of misses is
linear in the logarithm of the arrival rate that came about, fitted by maximum likelihood to the
probes near the bracket. Misses come in bursts, since requests that wait wait together: the interval
is from fits to resampled blocks of consecutive requests of each probe (Künsch 1989), so that a
burst counts once.
Where every probe near the bracket clearly holds or clearly does not, the model cannot tell what is
between the two: the interval is that gap then, and it is halved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from results.goodput.shares import BLOCKS, share_interval
from results.metrics.arrays import Flags, Floats

STEP = 2.0
"""By which factor rates go up or down while there is no bracket."""
NEAR = 1.25
"""Probes within this factor of the bracket shape the model."""
DRAWS = 200
FEWEST = 3
"""Probes about the rate that is found."""
_RIDGE = 1e-3
_STEEPEST = 200.0


class Probe(NamedTuple):
    """What came of one rate."""

    asked: float
    """Requests per second."""
    rate: float
    """That came about: arrivals are random."""
    met: Flags
    """(n,) in the order of arrival, of the steady part."""

    @property
    def share(self) -> float:
        """That met the objective."""
        return float(self.met.mean()) if len(self.met) else 0.0


class FoundRate(NamedTuple):
    """Requests per second."""

    rate: float
    low: float
    high: float


@dataclass(slots=True)
class RateSearch:
    """Tells which rate to try next, until it knows.

    Args:
        share: of the requests that is to meet the objective, between 0 and 1.
        start: the first rate.
        tolerance: half the width of the interval that is narrow enough, relative.
        most: probes.
        confidence: of the interval.
    """

    share: float
    start: float
    tolerance: float = 0.05
    most: int = 14
    confidence: float = 0.95
    probes: list[Probe] = field(default_factory=list)

    def add(self, probe: Probe) -> None:
        """What the last rate came to."""
        self.probes.append(probe)

    def next_rate(self) -> float | None:
        """The rate to try next; None when the search is over."""
        if len(self.probes) >= self.most:
            return None
        if not self.probes:
            return self.start
        low, high = self.bracket()
        if high is None:
            assert low is not None
            return low * STEP
        if low is None:
            return high / STEP
        found = self.found()
        if found is None:
            return math.sqrt(low * high)
        if high / low > 1 + 4 * self.tolerance:
            # inside the bracket, and not so near its ends that it hardly shrinks
            room = (high / low) ** 0.2
            return float(min(max(found.rate, low * room), high / room))
        about = 1 + 2 * self.tolerance
        if sum(high <= one.asked <= high * about for one in self.probes) < 2:
            return high * (1 + self.tolerance / 2)
        gap = self._gap()
        if gap is not None and gap[1] - gap[0] > 2 * self.tolerance * found.rate:
            return math.sqrt(gap[0] * gap[1])
        here = sum(1 / about <= one.asked / found.rate <= about for one in self.probes)
        narrow = (found.high - found.low) / 2 <= self.tolerance * found.rate
        if narrow and here >= FEWEST:
            return None
        # on both sides, so that the slope is known where it counts
        return found.rate * (1 + self.tolerance * (0.5 if here % 2 else -0.5))

    def bracket(self) -> tuple[float | None, float | None]:
        """The greatest asked rate that held, and the least that did not: see `bracket_of`."""
        shares = [(one.asked, float(one.met.sum()), len(one.met)) for one in self.probes]
        return bracket_of(shares, self.share)

    def found(self) -> FoundRate | None:
        """The rate with its interval; None before there is a bracket."""
        low, high = self.bracket()
        if low is None or high is None:
            return None
        near = self._near(low, high)
        rates = np.array([math.log(one.rate) for one in near])
        counts = np.array([float(len(one.met)) for one in near])
        misses = np.array([float((~one.met).sum()) for one in near])
        middle = math.log(low * high) / 2
        bounds = math.log(low / NEAR), math.log(high * NEAR)
        best = _crossing(rates - middle, misses, counts, self.share)
        rng = np.random.default_rng(0)
        drawn = []
        for _ in range(DRAWS):
            again = np.array([_resampled(one.met, rng) for one in near])
            drawn.append(_crossing(rates - middle, again * counts, counts, self.share))
        tail = (1 - self.confidence) / 2
        ends = np.quantile(np.array(drawn), [tail, 1 - tail])
        clipped = [
            math.exp(min(max(value + middle, bounds[0]), bounds[1])) for value in (best, *ends)
        ]
        if (gap := self._gap()) is None:
            return FoundRate(*clipped)
        rate, *ends = clipped
        return FoundRate(min(max(rate, gap[0]), gap[1]), min(ends[0], gap[0]), max(ends[1], gap[1]))

    def _near(self, low: float, high: float) -> list[Probe]:
        return [one for one in self.probes if low / NEAR <= one.asked <= high * NEAR]

    def _gap(self) -> tuple[float, float] | None:
        """The greatest rate that clearly holds and the least that clearly does not, as they came
        about, where all probes near the bracket are clear and in this order."""
        low, high = self.bracket()
        if low is None or high is None:
            return None
        holds: list[float] = []
        misses: list[float] = []
        for one in self._near(low, high):
            least, most = share_interval(one.met, self.confidence)
            if least <= self.share <= most:
                return None
            (holds if least > self.share else misses).append(one.rate)
        if not holds or not misses or max(holds) >= min(misses):
            return None
        return max(holds), min(misses)


def bracket_of(
    probed: Iterable[tuple[float, float, int]], share: float
) -> tuple[float | None, float | None]:
    """The greatest rate that held and the least that did not, where no rate counts as better than a
    lower one: those that came out so are pooled (pool adjacent violators, Ayer et al. 1955).

    Args:
        probed: rates, how many requests (or probes) were good there, and of how many.
        share: of the good ones at a rate that holds, at least.
    """
    pooled: list[tuple[float, float, float, int]] = []  # lowest and highest rate, good, of all
    for rate, good, count in sorted(probed):
        block = rate, rate, good, count
        while pooled and (
            pooled[-1][1] == block[0] or block[2] * pooled[-1][3] > pooled[-1][2] * block[3]
        ):
            first, _, less, fewer = pooled.pop()
            block = first, block[1], less + block[2], fewer + block[3]
        pooled.append(block)
    held = [one[1] for one in pooled if one[2] >= share * one[3]]
    lost = [one[0] for one in pooled if one[2] < share * one[3]]
    return max(held, default=None), min(lost, default=None)


def _resampled(met: Flags, rng: np.random.Generator) -> float:
    """The share of misses in blocks of consecutive requests, drawn anew."""
    size = max(1, len(met) // BLOCKS)
    count = len(met) // size
    blocks = (~met[: count * size]).reshape(count, size).mean(1)
    return float(blocks[rng.integers(0, count, count)].mean())


def _crossing(x: Floats, misses: Floats, counts: Floats, share: float) -> float:
    """Where the fitted share of misses is 1 - `share`: x, log rates around the bracket's middle.

    Half a miss and half a hit are added to each probe, so that one without misses has a logit, and
    the slope is held positive: more load does not help."""
    total = counts + 1
    rate_of_misses = (misses + 0.5) / total
    a, b = float(np.log(rate_of_misses / (1 - rate_of_misses)).mean()), 5.0
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(a + b * x, -30, 30)))
        weight = np.maximum(total * p * (1 - p), 1e-9)
        slope = np.array([(misses + 0.5 - total * p).sum(), ((misses + 0.5 - total * p) * x).sum()])
        curve = np.array(
            [[weight.sum(), (weight * x).sum()], [(weight * x).sum(), (weight * x**2).sum()]]
        )
        step = np.linalg.solve(curve + _RIDGE * np.eye(2), slope)
        limit = max(1.0, float(np.abs(step).max()) / 5)
        a, b = a + float(step[0]) / limit, b + float(step[1]) / limit
        b = min(max(b, 0.5), _STEEPEST)
        if float(np.abs(step).max()) < 1e-6:
            break
    wanted = math.log((1 - share) / share)
    return (wanted - a) / b


def limited_by(shares: Sequence[tuple[str, float]]) -> str:
    """The bound that the fewest requests met: of (name, share)."""
    return min(shares, key=lambda one: one[1])[0] if shares else ""
