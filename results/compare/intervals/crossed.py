"""Mean of requests x repeats with its t interval, by crossed variance components.

Every repeat asks the same requests, so that a measurement is mean + repeat + request + rest, each
part random (Searle, Casella and McCulloch 1992, Variance Components, chapter 5; Owen 2007, Annals
of Applied Statistics 1:386, section 2). In full data the mean's variance is (MS of repeats + MS of
requests - MS of the rest) / number of measurements; where some are missing, the three mean squares
are weighted so that the sum has the mean's variance as its expectation (Henderson 1953, Biometrics
9:226, method I for the two factors; the rest's from the additive fit). The degrees of freedom of
that sum are Satterthwaite's (1946, Biometrics Bulletin 2:110).

The mean square of repeats is enlarged for `NEIGHBOURS`. In ABBA order two neighbouring repeats
touch: their two trials of B (or of A) stand side by side and share what the machine did there. With
a speed whose correlation falls by a factor r from trial to trial, neighbours have the covariance
r (1 - r)^2 and each the variance 2 (1 - r): they are correlated by r (1 - r) / 2, at most 1/8. A
sum over R repeats then varies more, and their mean square less, than independent repeats' would;
`enlarged` is the ratio of the two. Without it an interval at 95% missed the truth in up to 9% of
simulated comparisons (`benchmarks/soundness/wandering.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from results.compare.intervals.student import t_quantile
from results.metrics.arrays import Floats, Ints

NEIGHBOURS = 1 / 8
"""Correlation of neighbouring repeats that the interval allows for."""
MOST_REPEATS = 100
"""Advice beyond so many repeats is none."""
_SOUND = 1e8
"""Condition of the system that tells the components apart."""


@dataclass(frozen=True, slots=True)
class CrossedMean:
    """A mean, its variance and what that rests on. `variance` and `df` are NaN with fewer than two
    units: one request, asked however often, says nothing of others."""

    mean: float
    variance: float
    df: float
    repeats: int
    """Repeats with a measurement. With one the variance is that between requests only: how much
    the machine differs from repeat to repeat is unknown, and the interval too narrow for it."""
    units: int
    """Requests, or data rows where several requests ask the same one."""
    of_units: float
    """The part of the variance that more repeats leave as it is."""

    def bounds(self, level: float = 0.95) -> tuple[float, float] | None:
        """The two-sided interval at `level`; None where there is no variance."""
        if math.isnan(self.variance):
            return None
        half = t_quantile((1 - level) / 2, self.df) * math.sqrt(self.variance)
        return self.mean - half, self.mean + half

    def predicted(self, repeats: int) -> tuple[float, float]:
        """Variance and degrees of freedom that so many repeats (at least 2) of the same requests
        would have."""
        of_repeats = (self.variance - self.of_units) * self.repeats / repeats
        variance = of_repeats + self.of_units
        parts = of_repeats**2 / (repeats - 1) + self.of_units**2 / (self.units - 1)
        return variance, max(1.0, variance**2 / parts) if parts else 1.0

    def repeats_to_exclude(self) -> int | None:
        """Repeats in all with which the 95% interval leaves 0 out in 4 of 5 experiments, if the
        true mean is the one found. None where no `MOST_REPEATS` do, which asks for other requests,
        where the mean is 0, and with a single repeat, which does not tell how much they
        differ."""
        if math.isnan(self.variance) or self.repeats < 2 or self.mean == 0:
            return None
        normal = NormalDist()
        # Student's t has the longer tails: what falls short of this falls short of that
        least = -normal.inv_cdf(0.025) - normal.inv_cdf(0.2)
        for repeats in range(self.repeats, MOST_REPEATS + 1):
            variance, df = self.predicted(repeats)
            if abs(self.mean) < least * math.sqrt(variance):
                continue
            needed = t_quantile(0.025, df) + t_quantile(0.2, df)
            if abs(self.mean) >= needed * math.sqrt(variance):
                return repeats
        return None


def crossed_mean(values: Floats, rows: Ints | None = None) -> CrossedMean | None:
    """The mean over all entries of `values` ((repeats, requests), NaN where missing) with its
    variance; None where there is no entry.

    `rows`: (requests,) the number of the data row that each request asks; None where each asks its
    own. Requests of one row are one unit, with their mean as its measurement: asking a row again
    is no new evidence on other rows.
    """
    values = values[~np.isnan(values).all(axis=1)]
    kept = ~np.isnan(values).all(axis=0)
    values = values[:, kept]
    if not values.size:
        return None
    weights = (~np.isnan(values)).astype(float)
    sums = np.where(weights > 0, values, 0.0)
    if rows is not None:
        sums, weights = _by_row(sums, rows[kept]), _by_row(weights, rows[kept])
    mean = float(sums.sum() / weights.sum())
    repeats, units = sums.shape
    if units < 2:
        return CrossedMean(mean, math.nan, math.nan, repeats, units, math.nan)
    found = np.where(weights > 0, sums / np.maximum(weights, 1), 0.0)
    if repeats < 2:
        share = weights / weights.sum()
        spread = (share**2 * (found - mean) ** 2).sum() * units / (units - 1)
        return CrossedMean(mean, float(spread), units - 1.0, 1, units, float(spread))
    return _both(mean, found, weights)


def _both(mean: float, found: Floats, weights: Floats) -> CrossedMean:
    """The components of (repeats, units) cell means and their weights, 0 where a cell is empty."""
    repeats, units = found.shape
    square, free = _rest(found, (weights > 0).astype(float))
    squares = np.array([_between(found, weights, mean, axis) for axis in (1, 0)])
    shares, of_rest = _shares(weights, rest_known=free > 0)
    parts, rest = shares * squares, of_rest * square
    parts[0] *= enlarged(repeats)
    variance = float(max(parts.sum() + rest, parts.max()))
    terms = parts[0] ** 2 / (repeats - 1) + parts[1] ** 2 / (units - 1)
    terms += rest**2 / free if free else 0.0
    df = max(variance**2 / terms, min(repeats, units) - 1.0) if terms > 0 else 1.0
    lasting = max(0.0, variance - float(parts[0]))
    return CrossedMean(mean, variance, float(df), repeats, units, lasting)


def _between(found: Floats, weights: Floats, mean: float, axis: int) -> float:
    """Mean square between the levels that are left when `axis` is summed over."""
    total = weights.sum(axis=axis)
    deviation = (weights * (found - mean)).sum(axis=axis) / total
    return float((total * deviation**2).sum() / (len(total) - 1))


def _shares(weights: Floats, *, rest_known: bool) -> tuple[Floats, float]:
    """(2,) how much of each mean square, repeats' and units', goes into the mean's variance, and
    how much of the rest's. In full data 1/N each and -1/N.

    Each mean square's expectation is linear in the three components, and so is the mean's variance:
    the shares solve that system. Where nothing tells the rest's component (too few cells) or the
    solution is not positive, each factor's mean square counts whole, which is on the safe side.
    """
    total, squares = weights.sum(), weights**2
    sums = weights.sum(axis=1), weights.sum(axis=0)
    wanted = np.array([(sums[0] ** 2).sum(), (sums[1] ** 2).sum(), squares.sum()]) / total**2
    inner = np.array([(squares.sum(axis=axis) / sums[1 - axis]).sum() for axis in (1, 0)])
    levels = np.array([len(sums[0]) - 1, len(sums[1]) - 1])
    expected = np.array([[total, inner[0]], [inner[1], total]]) - total * wanted[:2]
    expected /= levels[:, None]
    whole = wanted[:2] / expected.diagonal()
    if not rest_known or np.linalg.cond(expected) > _SOUND:
        return whole, 0.0
    shares = np.linalg.solve(expected.T, wanted[:2])
    if not (shares > 0).all():
        return whole, 0.0
    return shares, float(wanted[2] - shares @ ((inner - total * wanted[2]) / levels))


def _rest(found: Floats, cells: Floats) -> tuple[float, int]:
    """Mean square of what an additive fit of repeats and units leaves of the cells that are there
    (1, else 0), and its degrees of freedom; (0, 0) where it leaves nothing. The units are
    eliminated from the normal equations, so that what is solved has the size of the repeats."""
    per_unit = cells.sum(axis=0)
    centred = cells * (found - (cells * found).sum(axis=0) / per_unit)
    normal = np.diag(cells.sum(axis=1)) - (cells / per_unit) @ cells.T
    effects, _, rank, _ = np.linalg.lstsq(normal, centred.sum(axis=1), rcond=1e-10)
    free = int(cells.sum()) - len(per_unit) - int(rank)
    if free <= 0:
        return 0.0, 0
    lift = cells * effects[:, None]
    left = centred - lift + cells * (lift.sum(axis=0) / per_unit)
    return float((left**2).sum() / free), free


def enlarged(repeats: float) -> float:
    """Variance of the mean of correlated repeats over what their mean square makes of it."""
    over = 2 * NEIGHBOURS / repeats
    return (1 + over * (repeats - 1)) / (1 - over)


def _by_row(values: Floats, rows: Ints) -> Floats:
    """(repeats, distinct rows) sums over the requests of each row."""
    _, place = np.unique(rows, return_inverse=True)
    return np.array([np.bincount(place, weights=of_repeat) for of_repeat in values])
