"""Tests and their verdicts.

Each metric of each cell has two one-sided tests against its margin. "Is it worse by less than the
margin?" shows that it passes: a non-inferiority test at level alpha. The whole file passes when all
cells do, which no further correction is needed for: a run that is slower by its margin in any cell
passes with a chance of at most alpha, that cell's (intersection-union test: Berger 1982,
Technometrics 24:295). "Is it worse by more?" shows that it fails: there one wrong answer is enough
to refuse a run, so that these are Holm-corrected over all metrics and cells (Holm 1979,
Scandinavian Journal of Statistics 6:65), and a run that is worse beyond its margins nowhere fails
with a chance of at most alpha for the whole file. What neither test shows is inconclusive.

Scores and equal answers are within their margin where their cell shows it, or where all cells of
their backend together do, the cell by itself does not seem worse by more than twice the margin and
nothing is shown against it. So for them the chance of alpha is a backend's and not a cell's. Where
no repeat changes any of them there is no chance, and the row passes: a gate asks whether this
version changed on these prompts. Of other prompts that shows nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from results.compare.intervals.crossed import CrossedMean
from results.compare.intervals.student import t_quantile, t_tail

Verdict = Literal["pass", "fail", "inconclusive"]
POWER = 0.8
"""What is told as detectable is found so often."""
_ROUNDING = 1e-9


def p_within(worse: CrossedMean, bound: float) -> float | None:
    """One-sided p value of "worse by at least `bound`": small shows that the margin holds. None
    where nothing is known of the error."""
    return _p_value(-1.0, worse, bound)


def p_beyond(worse: CrossedMean, bound: float) -> float | None:
    """One-sided p value of "worse by at most `bound`": small shows that the margin is broken."""
    return _p_value(1.0, worse, bound)


def capped(worse: CrossedMean) -> CrossedMean:
    """With the degrees of freedom of its repeats at most, where there are several: two that agree
    by luck leave a mean's error to its requests, with many degrees, and among many rows some do.
    """
    if worse.repeats < 2:
        return worse
    return replace(worse, df=min(worse.df, worse.repeats - 1.0))


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p values, to be compared with the level of the whole family (Holm 1979)."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = largest
    return adjusted


def detectable(worse: CrossedMean, bound: float, alpha: float, tests: int) -> float | None:
    """The smallest amount by which this cell alone can be worse so that it fails in 4 of 5
    comparisons like this one, on the scale of `bound`; None where the error is not known."""
    if math.isnan(worse.variance):
        return None
    df = max(worse.df, 1.0)
    needed = t_quantile(alpha / max(tests, 1), df) + t_quantile(1 - POWER, df)
    return bound + needed * math.sqrt(worse.variance)


def verdict(within: float | None, beyond: float | None, alpha: float) -> Verdict:
    """Of one cell, from `p_within` and the adjusted `p_beyond`."""
    if beyond is not None and beyond <= alpha:
        return "fail"
    return "pass" if within is not None and within <= alpha else "inconclusive"


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Of the whole file."""
    for worst in ("fail", "inconclusive"):
        if worst in verdicts:
            return "fail" if worst == "fail" else "inconclusive"
    return "pass"


def _p_value(sign: float, worse: CrossedMean, bound: float) -> float | None:
    if math.isnan(worse.variance):
        return None
    distance = sign * (worse.mean - bound)
    if worse.variance <= 0:
        # known exactly: what stands at its margin is within it
        return float(distance <= _ROUNDING) if sign > 0 else float(distance < -_ROUNDING)
    return t_tail(distance / math.sqrt(worse.variance), worse.df)
