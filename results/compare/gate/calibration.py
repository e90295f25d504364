"""Margins that a machine can hold, from the repeats of one run: a comparison of it with itself.

Two runs of one version differ by what the machine does from repeat to repeat. With s the standard
deviation of a repeat's mean log, R paired repeats tell the ratio of two such runs with a variance
of 2 s^2 / R, enlarged as `crossed_mean` does for repeats that follow one another, and R - 1 degrees
of freedom. A margin is held when a comparison of equal versions passes in 4 of 5 cases. Such a
margin is as uncertain as the s that it is made of, which the repeats show with R - 1 degrees of
freedom too: the share that passes is a mean over what they may have shown of it. All n rows have to
pass, each in the n-th root of 4 of 5 cases.

Scores and answers have no such s: what flips is a few requests. Halves of the repeats are set side
by side, as the gate does it with two runs, and the mean of the variances that it finds is that of
half as many repeats.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from harness.core.errors import UserError
from harness.core.names import REDRAWN
from results.compare.gate.evidence import answers, evidence
from results.compare.gate.margins import GateRules
from results.compare.gate.quantities import GateQuantity, quantities
from results.compare.gate.reduced import CellName, ReducedRun, ReducedTrial
from results.compare.gate.verdicts import POWER
from results.compare.intervals.crossed import enlarged
from results.compare.intervals.student import t_quantile

Spread = tuple[CellName, GateQuantity, int, float, float]
"""Of what, over how many repeats, how much, and the margin that is wished."""
MOST_REPEATS = 200
LEAST_REPEATS = 3
"""With two there is one difference, which says next to nothing of a spread."""
LEAST_FLIPPING = 4
"""Halves of one repeat tell nothing of what a run's repeats differ by."""
HALVES = 20
NODES = 100
MOST_ERRORS = 1e6


@dataclass(frozen=True, slots=True)
class HeldMargin:
    """What a machine can hold for one quantity of one cell."""

    cell: CellName
    metric: str
    repeats: int
    spread: float
    """Standard deviation of a repeat's mean log (0.01: about 1%), or of a mean difference."""
    margin: float
    """What as many repeats can hold: relative, or a difference of scores and of equal answers."""
    wished: float
    repeats_for_wish: int | None
    """None where not even `MOST_REPEATS` are enough."""


def calibrated(
    run: ReducedRun, rules: GateRules, wished: float, *, unsound: bool = False
) -> list[HeldMargin]:
    """The margins of each cell: of all that is measured by the clock, and of those scores and
    answers that the repeats do not agree in. `wished` is of the former; the latter are to hold what
    their rule says.

    Raises `UserError` for a run with loads that are drawn anew, one with fewer than `LEAST_REPEATS`
    sound repeats of a cell, and one without a metric that the clock measures.
    """
    for cell in run.cells():
        if cell.load.endswith(REDRAWN):
            raise UserError(
                f"{run.where}: {cell.load}: how repeats with arrivals of their own differ is not "
                "how two versions under the same arrivals do; calibrate without 'redraw'"
            )
    known = quantities()
    ended = {c: [t for t in found if t.ended_well] for c, found in run.cells().items()}
    asked = [
        (cell, known[name], [t for t in trials if t.is_usable or unsound])
        for cell, trials in ended.items()
        for name in rules.margins(cell)
        if known[name].by_the_clock
    ]
    found = list(_spreads(run.where, asked, wished))
    if not found:
        raise UserError(f"{run.where}: no cell has a metric that the clock measures")
    found += _flipping(ended, rules)
    return [_held(*one, rules.alpha, len(found)) for one in found]


def margin_held(
    spread: float,
    repeats: int,
    alpha: float,
    rows: int,
    *,
    seen: int | None = None,
    relative: bool = True,
) -> float:
    """The margin that a file of `rows` rows holds with so many repeats. `seen`: how many repeats
    showed the spread; None where it is known."""
    error = spread * math.sqrt(2 / repeats * enlarged(repeats))
    if seen is None:
        df = repeats - 1
        needed = t_quantile(alpha, df) + t_quantile((1 - POWER) / rows, df)
    else:
        needed = _errors_passed(repeats, seen, alpha, POWER ** (1 / rows))
    return math.expm1(min(needed * error, 50.0)) if relative else needed * error


def repeats_needed(
    spread: float,
    wished: float,
    alpha: float,
    rows: int,
    *,
    seen: int | None = None,
    relative: bool = True,
) -> int | None:
    """The fewest repeats, at least `LEAST_REPEATS`, that hold a margin."""

    def holds(repeats: int) -> bool:
        found = margin_held(spread, repeats, alpha, rows, seen=seen, relative=relative)
        return found <= wished

    tried = range(LEAST_REPEATS, MOST_REPEATS + 1)
    place = bisect_left(tried, True, key=holds)
    return tried[place] if place < len(tried) else None


@cache
def _errors_passed(repeats: int, seen: int, alpha: float, share: float) -> float:
    """How many standard errors, as `seen` repeats show them, a margin needs so that equal versions
    pass in that share of comparisons: of Z + t S <= m S', with a normal Z, the S of the comparison
    and the S' of the calibration, which are roots of chi-squares over their degrees of freedom."""
    from scipy.optimize import brentq
    from scipy.special import chdtri, ndtr

    # most of the chance to miss lies where S is large, or S' small: there the nodes are dense
    places = (np.arange(NODES) + 0.5) / NODES
    tails, weights = places**3, places**2 / (places**2).sum()
    own = t_quantile(alpha, repeats - 1) * np.sqrt(chdtri(repeats - 1, tails) / (repeats - 1))
    shown = np.sqrt(chdtri(seen - 1, 1 - tails) / (seen - 1))

    def missed(margin: float) -> float:
        return share - float(weights @ ndtr(margin * shown - own[:, None]) @ weights)

    return float(brentq(missed, 0.0, MOST_ERRORS))


def _spreads(
    where: str,
    asked: Sequence[tuple[CellName, GateQuantity, Sequence[ReducedTrial]]],
    wished: float,
) -> Iterator[Spread]:
    for cell, found, trials in asked:
        means = [m for t in trials if (m := _mean_log(found, t)) is not None]
        if found.is_of_a_load:
            means = list(dict.fromkeys(means))
        if trials and not means:
            continue
        if found.is_of_a_load and len(means) < LEAST_REPEATS:
            continue  # more repeats of these loads would tell no more
        if len(means) < LEAST_REPEATS:
            raise UserError(
                f"{where}: {len(means)} sound repeats of {cell.label()}; expected at least "
                f"{LEAST_REPEATS} to see how repeats differ"
            )
        yield cell, found, len(means), float(np.std(means, ddof=1)), wished


def _held(
    cell: CellName,
    found: GateQuantity,
    repeats: int,
    spread: float,
    wished: float,
    alpha: float,
    rows: int,
) -> HeldMargin:
    seen, relative = repeats if found.by_the_clock else None, found.is_ratio
    return HeldMargin(
        cell,
        found.name,
        repeats,
        spread,
        margin_held(spread, repeats, alpha, rows, seen=seen, relative=relative),
        wished,
        repeats_needed(spread, wished, alpha, rows, seen=seen, relative=relative),
    )


def _flipping(
    cells: Mapping[CellName, Sequence[ReducedTrial]], rules: GateRules
) -> Iterator[Spread]:
    """With the spread that gives a comparison of two runs the variance that halves have, and the
    margin that is asked for; where the repeats differ."""
    known = quantities()
    for cell, trials in cells.items():
        if len(trials) < LEAST_FLIPPING or trials[0].replayed:
            continue
        for name, rule in rules.margins(cell).items():
            found = known[name]
            if found.form in ("score", "answers") and (variance := _of_halves(found, trials)):
                repeats = len(trials)
                yield cell, found, repeats, math.sqrt(variance * repeats / 2), rule.margin


def _of_halves(found: GateQuantity, trials: Sequence[ReducedTrial]) -> float:
    """The variance that a comparison of two runs of as many repeats has, by halves of them."""
    chance, size = np.random.default_rng(len(trials)), len(trials) // 2
    variances = []
    for _ in range(HALVES):
        drawn = chance.permutation(len(trials))
        one, other = ([trials[n] for n in half] for half in (drawn[:size], drawn[size : 2 * size]))
        if found.form == "answers":
            worse = answers(one, other).worse
        else:
            worse = evidence(found, found.better, one, other, paired=True).worse
        if worse is not None and not math.isnan(worse.variance):
            variances.append(worse.variance)
    return float(np.mean(variances)) * size / len(trials) if variances else 0.0


def _mean_log(found: GateQuantity, trial: ReducedTrial) -> float | None:
    """The repeat's mean log over requests; None where nothing is defined."""
    if found.is_of_a_trial:
        values = np.array([trial.numbers.get(found.name, math.nan)])
    else:
        values = trial.values.get(found.name, np.zeros(0))
    usable = values[values > 0]
    return float(np.log(usable).mean()) if len(usable) else None
