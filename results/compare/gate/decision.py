"""What a comparison answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from results.compare.gate.margins import as_change, bound
from results.compare.gate.quantities import GateQuantity
from results.compare.gate.reduced import CellName
from results.compare.gate.verdicts import (
    Verdict,
    capped,
    detectable,
    holm,
    overall,
    p_beyond,
    p_within,
    verdict,
)
from results.compare.intervals.backend_mean import backend_mean
from results.compare.intervals.crossed import CrossedMean

ALONE = 2.0
"""So many margins a cell may seem to be worse by itself, where all of its backend's cells together
are within theirs."""


@dataclass(frozen=True, slots=True)
class GateRow:
    """One quantity of one cell. Amounts are relative (0.05 is 5%) where `relative` says so, else
    differences; positive ones are worse."""

    cell: CellName
    metric: str
    relative: bool
    unit: str
    base: float | None
    new: float | None
    margin: float
    worse_by: float | None
    low: float | None
    """The interval at level 1 - 2 alpha: its ends are the one-sided bounds at alpha."""
    high: float | None
    detectable: float | None
    """What this many repeats and requests would have found in 4 of 5 such comparisons."""
    p_within: float | None
    """Of a score and of equal answers over all cells of the backend, where that is smaller."""
    p_beyond: float | None
    """Adjusted for all rows."""
    repeats: int
    verdict: Verdict
    note: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of the gate, with all that it rests on."""

    base: str
    new: str
    alpha: float
    paired: bool
    """Whether both ran on one machine, so that repeats were set side by side."""
    rows: Sequence[GateRow]
    missing: Sequence[str]
    """Cells and metrics that BASE has and NEW lacks, a sentence each."""
    notes: Sequence[str]
    base_origin: str = ""
    """Commits and day of BASE, where they are known."""
    new_origin: str = ""
    side_by_side: bool = False
    """Whether both ran in one call of `run`, in turns, so that both had the same machine."""
    lacking: frozenset[CellName] = frozenset()
    """The cells that `missing` speaks of."""

    @property
    def verdict(self) -> Verdict:
        """Of the whole."""
        return overall([row.verdict for row in self.rows] + ["fail"] * bool(self.missing))

    @property
    def doubtful(self) -> frozenset[CellName]:
        """The cells that do not pass."""
        return self.lacking.union(row.cell for row in self.rows if row.verdict != "pass")

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the verdict."""
        rows = [dataclasses.asdict(row) for row in self.rows]
        return {
            "verdict": self.verdict,
            "base": self.base,
            "new": self.new,
            "base_origin": self.base_origin,
            "new_origin": self.new_origin,
            "alpha": self.alpha,
            "paired": self.paired,
            "side_by_side": self.side_by_side,
            "missing": list(self.missing),
            "notes": list(self.notes),
            "rows": rows,
        }


@dataclass(frozen=True, slots=True)
class Tested:
    """A row before all tests are known: its verdict depends on how many there are."""

    cell: CellName
    quantity: GateQuantity
    margin: float
    worse: CrossedMean
    base: float | None
    new: float | None
    note: str = ""
    known: Verdict | None = None
    """Where no test is needed, or none is to be believed."""
    by_chance: float | None = None
    """p of a test of its own, in the place of that against the margin."""
    unequal: float = 0.0
    """The log of how much longer NEW's answers are, where that counts: then nothing passes, and
    what fails is worse by more than its margin and all of this."""

    @property
    def limit(self) -> float:
        """What a fail goes beyond, on the scale of `worse`."""
        return bound(self.quantity, self.margin) + abs(self.unequal)

    @property
    def against(self) -> CrossedMean:
        """What a fail rests on."""
        return capped(self.worse) if self.quantity.by_the_clock else self.worse

    @property
    def beyond(self) -> float | None:
        """p of "worse by at most the margin", before Holm's correction."""
        if self.known is not None:
            return None
        if self.by_chance is not None:
            return self.by_chance
        return p_beyond(self.against, self.limit)

    @property
    def is_exact(self) -> bool:
        """Whether there is no chance in it, so that it needs no share of the chance to be wrong."""
        no_test = self.by_chance is None and self.worse.variance == 0
        return no_test and not self.quantity.by_the_clock


def decided(found: Sequence[Tested], alpha: float) -> list[GateRow]:
    """Each with its verdict, Holm-corrected over all in which there is chance."""
    raw = {place: p for place, row in enumerate(found) if (p := row.beyond) is not None}
    drawn = [place for place in raw if not found[place].is_exact]
    adjusted = {**raw, **dict(zip(drawn, holm([raw[n] for n in drawn]), strict=True))}
    together = _within_together(found)
    return [
        _row(
            one,
            # what speaks against a cell by itself is not outweighed by the others
            together.get(place)
            if raw.get(place, 0.0) > alpha and one.worse.mean <= ALONE * one.margin
            else None,
            adjusted.get(place),
            alpha,
            len(drawn),
        )
        for place, one in enumerate(found)
    ]


def _within_together(found: Sequence[Tested]) -> dict[int, float]:
    """Place -> p of "worse by at least the margin" of a score, or of equal answers, over all cells
    of its backend."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, one in enumerate(found):
        if one.known is None and one.quantity.form in ("score", "answers"):
            cell = one.cell
            key = (cell.model, cell.backend, cell.options, one.quantity.name, str(one.margin))
            groups.setdefault(key, []).append(place)
    shown: dict[int, float] = {}
    for places in groups.values():
        mean = backend_mean([(found[n].cell.workload, found[n].worse) for n in places])
        if mean is not None and (p := p_within(mean, found[places[0]].margin)) is not None:
            shown.update(dict.fromkeys(places, p))
    return shown


def _row(
    one: Tested, together: float | None, beyond: float | None, alpha: float, tests: int
) -> GateRow:
    has_test = one.known is None and not one.unequal
    within = p_within(one.worse, one.limit) if has_test else None
    if within is not None and together is not None:
        within = min(within, together)
    ends = one.worse.bounds(1 - 2 * alpha) or (None, None)
    seen = detectable(one.against, one.limit, alpha, tests)
    amounts = [
        None if amount is None or math.isnan(amount) else as_change(one.quantity, amount)
        for amount in (one.worse.mean, *ends, seen)
    ]
    return GateRow(
        cell=one.cell,
        metric=one.quantity.name,
        relative=one.quantity.is_ratio,
        unit=one.quantity.unit,
        base=one.base,
        new=one.new,
        margin=one.margin,
        worse_by=amounts[0],
        low=amounts[1],
        high=amounts[2],
        detectable=amounts[3],
        p_within=within,
        p_beyond=beyond,
        repeats=one.worse.repeats,
        verdict=one.known or verdict(within, beyond, alpha),
        note=one.note or _of_no_change(one),
    )


def _of_no_change(one: Tested) -> str:
    """What a row of scores shows that no repeat changed."""
    if one.quantity.form != "score" or one.known or not one.is_exact or one.worse.mean:
        return ""
    if one.base is not None and one.base <= one.margin:
        return "BASE scores no more than the margin: nothing to lose"
    return "no prompt's score differs, which shows nothing of other prompts"
