"""Margins that a machine can hold, from the repeats of one run: a comparison of it with itself.

Two runs of one version differ by what the machine does from repeat to repeat. With s the standard
deviation of a repeat's mean log, R paired repeats tell the ratio of two such runs with a variance
of 2 s^2 / R, enlarged as `crossed_mean` does for repeats that follow one another, and R - 1 degrees
of freedom. A margin is held when a comparison of equal versions passes in 4 of 5 cases, if s is
what these repeats show of it: t at alpha plus t at 0.2 standard errors. All rows have to pass,
so that each of n gets an n-th of the chance to be inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.core.errors import UserError
from results.compare.gate.margins import GateRules
from results.compare.gate.quantities import GateQuantity, quantities
from results.compare.gate.reduced import CellName, ReducedRun, ReducedTrial
from results.compare.gate.verdicts import POWER
from results.compare.intervals.crossed import enlarged
from results.compare.intervals.student import t_quantile

MOST_REPEATS = 200
LEAST_REPEATS = 3
"""With two there is one difference, which says next to nothing of a spread."""


@dataclass(frozen=True, slots=True)
class HeldMargin:
    """What a machine can hold for one quantity of one cell."""

    cell: CellName
    metric: str
    repeats: int
    spread: float
    """Standard deviation of a repeat's mean log (0.01: about 1%)."""
    margin: float
    """Relative; what as many repeats can hold."""
    wished: float
    repeats_for_wish: int | None
    """None where not even `MOST_REPEATS` are enough."""


def calibrated(
    run: ReducedRun, rules: GateRules, wished: float, *, unsound: bool = False
) -> list[HeldMargin]:
    """The margins for all that is measured by the clock, of each cell. Raises `UserError` for a run
    with fewer than `LEAST_REPEATS` sound repeats of a cell, and for one without such a metric."""
    known = quantities()
    cells = {
        cell: [t for t in found if t.ended_well and (t.sound or unsound)]
        for cell, found in run.cells().items()
    }
    asked = [
        (cell, known[name], trials)
        for cell, trials in cells.items()
        for name in rules.margins(cell)
        if known[name].by_the_clock
    ]
    spreads = list(_spreads(run.where, asked))
    if not spreads:
        raise UserError(f"{run.where}: no cell has a metric that the clock measures")
    return [_held(*one, rules.alpha, len(spreads), wished) for one in spreads]


def margin_held(spread: float, repeats: int, alpha: float, rows: int) -> float:
    """The relative margin that a file of `rows` rows holds with so many repeats."""
    error = spread * math.sqrt(2 / repeats * enlarged(repeats))
    df = repeats - 1
    needed = t_quantile(alpha, df) + t_quantile((1 - POWER) / rows, df)
    return math.expm1(min(needed * error, 50.0))


def repeats_needed(spread: float, wished: float, alpha: float, rows: int) -> int | None:
    """The fewest repeats, at least `LEAST_REPEATS`, that hold a relative margin."""
    for repeats in range(LEAST_REPEATS, MOST_REPEATS + 1):
        if margin_held(spread, repeats, alpha, rows) <= wished:
            return repeats
    return None


def _spreads(
    where: str, asked: Sequence[tuple[CellName, GateQuantity, Sequence[ReducedTrial]]]
) -> Iterator[tuple[CellName, GateQuantity, int, float]]:
    for cell, found, trials in asked:
        means = [m for t in trials if (m := _mean_log(found, t)) is not None]
        if trials and not means:
            continue
        if len(means) < LEAST_REPEATS:
            raise UserError(
                f"{where}: {len(means)} sound repeats of {cell.label()}; expected at least "
                f"{LEAST_REPEATS} to see how repeats differ"
            )
        yield cell, found, len(means), float(np.std(means, ddof=1))


def _held(
    cell: CellName,
    found: GateQuantity,
    repeats: int,
    spread: float,
    alpha: float,
    rows: int,
    wished: float,
) -> HeldMargin:
    return HeldMargin(
        cell,
        found.name,
        repeats,
        spread,
        margin_held(spread, repeats, alpha, rows),
        wished,
        repeats_needed(spread, wished, alpha, rows),
    )


def _mean_log(found: GateQuantity, trial: ReducedTrial) -> float | None:
    """The repeat's mean log over requests; None where nothing is defined."""
    if found.form == "trial":
        values = np.array([trial.numbers.get(found.name, math.nan)])
    else:
        values = trial.values.get(found.name, np.zeros(0))
    usable = values[values > 0]
    return float(np.log(usable).mean()) if len(usable) else None
