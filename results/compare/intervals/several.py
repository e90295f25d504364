"""The mean over several cells of crossed means, with an interval that knows what cells share.

A repeat of one cell and the same repeat of another are neighbours in time on one machine, and cells
of one workload ask the same requests. So each cell's mean is taken apart into what each of its
repeats and each of its requests contributes (`CellEffects`); contributions of one repeat, or of one
request, are added up over the cells before they are squared. Errors that cells share count in full,
and those they do not share cancel: the variance of a mean with two-way clustering (Cameron, Gelbach
and Miller 2011, Journal of Business and Economic Statistics 29:238), which for one cell of full
data is that of `results.compare.intervals.crossed`. The cells themselves are fixed: nothing is said
of others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from results.compare.intervals.crossed import CrossedMean, enlarged
from results.metrics.arrays import Floats, Ints

_MOST = 700.0
"""Logarithms beyond leave everything open, and a float holds no such ratio."""


@dataclass(frozen=True, slots=True)
class CellEffects:
    """The mean of one cell, taken apart. All but `shares` in the unit of the measurements."""

    mean: float
    shares: Mapping[int, float]
    """Repeat -> its share of the measurements."""
    repeats: Mapping[int, float]
    """Repeat -> what it adds to the mean, against the others; they sum to 0."""
    requests: Sequence[float]
    """Likewise by request, or by data row where several requests ask the same one, in the order of
    the workload: 0 for one without a measurement."""
    units: int
    """Requests, or rows, with a measurement."""
    rest: float
    """The part of the mean's variance that repeats and requests both hold."""
    prompts: str
    """Tells the workload: requests of cells with the same one are the same."""

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **asdict(self),
            "shares": [list(item) for item in self.shares.items()],
            "repeats": [list(item) for item in self.repeats.items()],
        }

    @classmethod
    def from_plain(cls, found: Mapping[str, Any]) -> Self:
        """The inverse of `plain`."""
        both = {name: dict(found[name]) for name in ("shares", "repeats")}
        return cls(**{**found, **both})


def cell_effects(
    values: Floats, repeats: Sequence[int], prompts: str, rows: Ints | None = None
) -> CellEffects | None:
    """Take the mean of (repeats, requests) values, NaN where missing, apart; None without a value.

    Args:
        values: the measurements.
        repeats: the number of each repeat.
        prompts: see `CellEffects`.
        rows: (requests,) see `results.compare.intervals.crossed.crossed_mean`.
    """
    there = ~np.isnan(values)
    count = int(there.sum())
    if not count:
        return None
    mean = float(values[there].mean())
    off = np.where(there, values - mean, 0.0) / count
    of_requests, weights = off.sum(axis=0), there.astype(float)
    if rows is not None:
        of_requests = np.bincount(rows, weights=of_requests)
        weights = np.array([np.bincount(rows, weights=line) for line in weights])
        off = np.array([np.bincount(rows, weights=line) for line in off])
    own = [int(number) for number, line in zip(repeats, weights, strict=True) if line.any()]
    filled = weights.any(axis=1)
    shares = weights[filled].sum(axis=1) / count
    return CellEffects(
        mean=mean,
        shares=dict(zip(own, shares.tolist(), strict=True)),
        repeats=dict(zip(own, off[filled].sum(axis=1).tolist(), strict=True)),
        requests=[float(f"{x:.6g}") for x in of_requests.tolist()],
        units=int(weights.any(axis=0).sum()),
        rest=_rest(off, weights),
        prompts=prompts,
    )


def _rest(off: Floats, weights: Floats) -> float:
    """Variance of the mean that what an additive model leaves makes, where none is missing; else 0,
    which leaves it in both parts and is on the safe side."""
    there = np.ix_(weights.any(axis=1), weights.any(axis=0))
    off, weights = off[there], weights[there]
    repeats, units = weights.shape
    if repeats < 2 or units < 2 or not weights.all():
        return 0.0
    left = off - off.mean(axis=0) - off.mean(axis=1)[:, None] + off.mean()
    return float((left**2).sum() * repeats * units / ((repeats - 1) * (units - 1)))


def over_cells(cells: Sequence[CellEffects]) -> CrossedMean | None:
    """The mean of the cells' means, each counting the same; None without a cell. Its variance is
    NaN where a cell has a single request, and that between requests where no cell has two
    repeats."""
    if not cells:
        return None
    mean = sum(one.mean for one in cells) / len(cells)
    units = sum({one.prompts: one.units for one in cells}.values())
    known = sorted({number for one in cells for number in one.shares})
    numbers = {number: at for at, number in enumerate(known)}
    shares, of_repeats = np.zeros((len(cells), len(numbers))), np.zeros(len(numbers))
    of_requests: dict[str, Floats] = {}
    for place, one in enumerate(cells):
        for number, share in one.shares.items():
            shares[place, numbers[number]] = share
            of_repeats[numbers[number]] += one.repeats[number] / len(cells)
        # a sample's deviations from its own mean are too small by this
        enough = math.sqrt(one.units / (one.units - 1)) if one.units > 1 else math.nan
        mine = np.array(one.requests) * enough / len(cells)
        of_requests[one.prompts] = _added(of_requests.get(one.prompts, np.zeros(0)), mine)
    by_request = float(sum((found**2).sum() for found in of_requests.values()))
    if max(len(one.shares) for one in cells) < 2:
        return CrossedMean(mean, by_request, units - len(of_requests), 1, units, by_request)
    repeats = float(1 / (shares.mean(axis=0) ** 2).sum())
    times, free = _of_repeats(shares)
    by_repeat = float((of_repeats**2).sum()) * times * enlarged(repeats)
    rest = sum(one.rest for one in cells) / len(cells) ** 2
    variance = max(by_repeat + by_request - rest, by_repeat, by_request)
    terms = by_repeat**2 / free + by_request**2 / max(units - len(of_requests), 1)
    df = max(variance**2 / terms, min(free, units - 1.0)) if terms > 0 else 1.0
    lasting = max(0.0, variance - by_repeat)
    return CrossedMean(mean, variance, df, round(repeats), units, lasting)


def pooled_ratio(cells: Sequence[CellEffects]) -> tuple[float, float, float] | None:
    """The ratio whose logarithms the cells hold, over all of them, with its 95% interval; None
    without a cell, and where one has a single request."""
    found = over_cells(cells)
    if found is None or (bounds := found.bounds()) is None:
        return None
    value, low, high = (math.exp(max(-_MOST, min(_MOST, x))) for x in (found.mean, *bounds))
    return value, low, high


def _of_repeats(shares: Floats) -> tuple[float, float]:
    """What the sum of the squared contributions of repeats has to be multiplied by to be the
    variance that repeats bring to the mean, and the degrees of freedom of that, at least 1.

    A cell's contributions are taken from its own mean: where cells lack repeats, as in a run that
    goes on, they hold little of what repeats do to the mean. How little follows from the shares, if
    a repeat does the same to all cells (Bell and McCaffrey 2002, Survey Methodology 28:169). With
    the same R repeats in every cell the two are R / (R - 1) and R - 1.

    Args:
        shares: (cells, repeats) each repeat's of a cell's measurements; some cell has several.
    """
    weights = shares.mean(axis=0)
    left = np.diag(weights) - shares.T @ shares / len(shares)
    square = left @ left
    kept = float(square.trace())
    return float((weights**2).sum()) / kept, kept**2 / float((square**2).sum())


def _added(left: Floats, right: Floats) -> Floats:
    """The sum of two arrays, the shorter one continued with zeros."""
    total = np.zeros(max(len(left), len(right)))
    total[: len(left)] += left
    total[: len(right)] += right
    return total
