"""Searches the highest rate at which a share of the requests meets the objective.

Rates are doubled (or halved) until one holds and one does not; then the next rate is where a model
of all probes so far has the wanted share, kept inside the bracket; at last probes go to that rate
itself, until its interval is narrow. A rate that did not hold is tried once more, and is taken
together with higher ones that hold (isotonic regression: more load does not help), so that one
stall does not end a search far below the capacity. The model: the complementary log-log of the
share of misses is linear in the logarithm of the arrival rate that came about. Requests that wait,
wait together, so that a probe of n of them says as much as `effective_number`. The rate is where
the likelihood of the probes near the bracket is greatest, the interval where it is not much less
for any slope (profile likelihood). How near is as far as the model fits; where it does not fit at
all, since one probe contradicts the others, the interval is as much wider.
Where every probe near the bracket clearly holds or clearly does not, the model cannot tell what is
between the two: the interval is no narrower than that gap, and it is halved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from results.goodput.shares import effective_number, share_interval
from results.metrics.arrays import Flags, Floats

STEP = 2.0
"""By which factor rates go up or down while there is no bracket."""
WINDOWS = (2.0, 1.5, 1.25)
"""Probes within such a factor of the bracket shape the model, and the rate lies there: the first in
which the model is not refuted, since misses do not grow alike over all rates."""
REFUTED = 0.95
"""The quantile of chi-square that lack of fit must not exceed."""
FEWEST = 3
"""Probes about the rate that is found."""
KNOWN_FROM = 9
"""Degrees of freedom of the effective numbers, which are estimates: the bound of the likelihood is
F's and not chi-square's. Chosen for intervals that hold on queues whose capacity is known
(`benchmarks/soundness/goodput_search.py`)."""
_RATES, _SLOPES = 401, np.geomspace(1.0, 200.0, 33)


class Probe(NamedTuple):
    """What came of one rate."""

    asked: float
    """Requests per second."""
    rate: float
    """That came about: arrivals are random."""
    met: Flags
    """(n,) in the order of arrival, of the steady part."""
    waits: Floats | None = None
    """(n,) the times over their bounds; None where only `met` is known."""

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
        if self.is_narrow and here >= FEWEST:
            return None
        # on both sides, so that the slope is known where it counts
        return found.rate * (1 + self.tolerance * (0.5 if here % 2 else -0.5))

    @property
    def is_narrow(self) -> bool:
        """Whether the interval is as narrow as is wished."""
        found = self.found()
        return found is not None and (found.high - found.low) / 2 <= self.tolerance * found.rate

    def bracket(self) -> tuple[float | None, float | None]:
        """The greatest asked rate that held, and the least that did not: see `bracket_of`."""
        shares = [(one.asked, float(one.met.sum()), len(one.met)) for one in self.probes]
        return bracket_of(shares, self.share)

    def found(self) -> FoundRate | None:
        """The rate with its interval; None before there is a bracket."""
        low, high = self.bracket()
        if low is None or high is None:
            return None
        told, bound = self._told(low, high)
        best = np.flatnonzero(told.deviance <= 1e-6)
        inside = np.flatnonzero(told.deviance <= bound)
        ends = max(inside[0] - 1, 0), min(inside[-1] + 1, len(told.rates) - 1)
        rate = float(np.exp(np.log(told.rates[best]).mean()))
        least, most = (float(told.rates[end]) for end in ends)
        if (gap := self._gap()) is None:
            return FoundRate(rate, least, most)
        return FoundRate(min(max(rate, gap[0]), gap[1]), min(least, gap[0]), max(most, gap[1]))

    def _told(self, low: float, high: float) -> tuple[_Likelihood, float]:
        """By the first window in which the model is not refuted, with the bound of the deviance.
        Where it is in all of them some probe contradicts the others: then the bound is higher by
        how much more than they should the probes are spread about the model (McCullagh & Nelder
        1989, section 4.5)."""
        from scipy import stats  # takes longer to import than pages of no search take

        bound = float(stats.f.ppf(self.confidence, 1, KNOWN_FROM))
        for factor in WINDOWS:
            near = self._near(low, high, factor)
            told = _likelihood(near, self.share, low / factor, high * factor)
            free = max(len(near) - 2, 1)
            if told.lack <= stats.chi2.ppf(REFUTED, free):
                return told, bound
        return told, bound * max(told.lack / free, 1.0)

    def _near(self, low: float, high: float, factor: float = WINDOWS[0]) -> list[Probe]:
        return [one for one in self.probes if low / factor <= one.asked <= high * factor]

    def _gap(self) -> tuple[float, float] | None:
        """The greatest rate that clearly holds and the least that clearly does not, as they came
        about, where all probes near the bracket are clear and in this order."""
        low, high = self.bracket()
        if low is None or high is None:
            return None
        holds: list[float] = []
        misses: list[float] = []
        for one in self._near(low, high):
            least, most = share_interval(one.met, self.confidence, one.waits)
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


class _Likelihood(NamedTuple):
    rates: Floats
    deviance: Floats
    """Twice by how much the log-likelihood is below its greatest, at the best slope."""
    lack: float
    """Twice by how much its greatest is below that of shares which are free at each probe."""


def _likelihood(probes: Sequence[Probe], share: float, low: float, high: float) -> _Likelihood:
    """How well each rate between two bounds explains the probes as the one that `share` of the
    requests hold at."""
    x = np.log([one.rate for one in probes])
    numbers = np.array([effective_number(one.met, one.waits) for one in probes])
    misses = np.array([1 - one.share for one in probes])
    # who has waits that are too few or too even to tell is as bursty as its neighbours
    judged = np.array([len(one.met) for one in probes])
    numbers = np.minimum(numbers, judged / np.median(judged / numbers))
    crossing = np.linspace(min(math.log(low), x.min()), max(math.log(high), x.max()), _RATES)
    slopes = _SLOPES[:, None]
    wanted = math.log(-math.log(share))
    best = np.full(_RATES, -np.inf)
    for place, value in enumerate(crossing):
        hazard = np.exp(np.clip(wanted + slopes * (x - value), -30.0, 6.0))
        fit = numbers * (misses * np.log(-np.expm1(-hazard)) - (1 - misses) * hazard)
        best[place] = fit.sum(1).max()
    with np.errstate(divide="ignore", invalid="ignore"):
        each = misses * np.log(misses) + (1 - misses) * np.log1p(-misses)
    free = float(numbers @ np.nan_to_num(each))  # all met, or none, is certain
    return _Likelihood(np.exp(crossing), 2 * (best.max() - best), 2 * (free - best.max()))


def limited_by(shares: Sequence[tuple[str, float]]) -> str:
    """The bound that the fewest requests met: of (name, share)."""
    return min(shares, key=lambda one: one[1])[0] if shares else ""
