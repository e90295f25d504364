"""Each method at each size of the model over plain decoding on its own engine, and what decisions
have to bring for it to pay there: what a reader holds his own model's decisions against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from reports.cells import Cell, Overview
from reports.numbers import ratio
from reports.tables import PLACE, BodyRow, Column, Group, Table, build
from reports.variants import Variant
from reports.words.break_even import decisions
from reports.words.drafts import Drafting, drafting, engine
from reports.words.ranking.choices import load_words
from reports.words.scale import read_bytes
from reports.words.speed import Speed, speed
from results.compare.pairing import NATIVE


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method under one load."""

    variant: Variant
    under: Cell
    """One of those under the load."""
    engine: str
    """Equal for those on one engine, as far as that is known."""
    over: str
    gains: Sequence[Speed | None]
    """By model; None where nobody can say."""
    missing: Sequence[str]
    """By model, why not."""
    best: Sequence[bool]
    """Where no other is faster on the same engine that keeps plain decoding's text."""
    brings: str
    """What the decisions brought on the last model; empty where that is not counted."""
    needs: str
    """What they have to bring to be as fast as plain decoding there."""
    whole: Speed | None
    """On the last model over the run's reference, whatever engine that is of."""


class SizeTable(NamedTuple):
    """A row for each load and method, a column for each model; of one machine and its settings."""

    apart: str
    """See `Cell.apart`."""
    models: Sequence[str]
    """The smallest first; one empty name where the run has one."""
    rows: Sequence[MethodRow]
    reference: str
    """Of the run; empty where all rows are over it."""

    @property
    def has_lossy(self) -> bool:
        """Whether any method does not keep plain decoding's text."""
        return any(row.variant.lossy for row in self.rows)

    @property
    def has_best(self) -> bool:
        """Whether any number is bold."""
        return any(is_best for row in self.rows for is_best in row.best)

    @property
    def table(self) -> Table:
        """As the page shows it."""
        return build(_columns(self.models, self.reference), self.rows, _scope)


def by_model(seen: Overview) -> Iterator[tuple[str, list[Cell]]]:
    """The cells of each model, machine and settings (`Cell.part`), the smallest model first as far
    as that is known: no sentence pools several."""
    found: dict[str, list[Cell]] = {}
    for cell in seen.cells:
        found.setdefault(cell.part, []).append(cell)
    sizes = {name: max(read_bytes(cell.measured) for cell in own) for name, own in found.items()}
    yield from sorted(found.items(), key=lambda pair: sizes[pair[0]])


def by_size(seen: Overview) -> list[SizeTable]:
    """A table for each machine of a run of several models, or of replayed decisions, which are
    ranked with nobody; replays beside real runs are left out. Empty for other runs, and without any
    speed-up."""
    every = [cell for cell in seen.cells if cell.is_measured]
    cells = [cell for cell in every if not cell.variant.is_replay] or every
    if not cells or not (len(seen.models) > 1 or cells[0].variant.is_replay):
        return []
    models = list(dict.fromkeys(own[0].model for _, own in by_model(seen)))
    drafts = {one.cell: one for one in drafting(seen)}
    found = []
    for apart in dict.fromkeys(cell.apart for cell in cells):
        own = [cell for cell in cells if cell.apart == apart]
        rows: list[MethodRow] = []
        for load in dict.fromkeys(c.load for c in sorted(own, key=lambda cell: cell.order)):
            rows += _rows(seen, [c for c in own if c.load == load], models, drafts)
        if rows:
            is_told = any(row.over == NATIVE for row in rows) and _reference(seen) != NATIVE
            found.append(SizeTable(apart, models, rows, _reference(seen) if is_told else ""))
    return found


def _rows(
    seen: Overview, cells: Sequence[Cell], models: Sequence[str], drafts: Mapping[Cell, Drafting]
) -> Iterator[MethodRow]:
    found: list[MethodRow] = []
    for variant in {c.variant.index: c.variant for c in cells}.values():
        own = [cell for cell in cells if cell.variant.index == variant.index]
        if variant.is_reference:
            continue
        metric, over = _metric(seen, own)
        by_part = [[c for c in own if c.model == model] for model in models]
        gains = [speed(part, metric) for part in by_part]
        why = [_why_none(part, over) for part in by_part]
        decided = decisions(seen, by_part[-1], drafts)
        name = engine(own[0]) or variant.backend
        if any(gains):
            whole = speed(by_part[-1])
            found.append(MethodRow(variant, cells[0], name, over, gains, why, (), *decided, whole))
    order = list(dict.fromkeys(row.engine for row in found))
    for row in sorted(found, key=lambda row: (order.index(row.engine), row.variant.index)):
        alike = [r for r in found if (r.engine, r.over) == (row.engine, row.over)]
        rivals = [r.gains for r in alike if not r.variant.lossy]
        best = [_is_best(own, [r[at] for r in rivals]) for at, own in enumerate(row.gains)]
        yield replace(row, best=[is_best and not row.variant.lossy for is_best in best])


def _metric(seen: Overview, own: Sequence[Cell]) -> tuple[str, str]:
    """The speed-up over plain decoding on the same engine where it was run, else over the
    reference; and the name of what it is over."""
    native = [cell.value("speedup_native") for cell in own if engine(cell) == NATIVE]
    if any(value is not None for value in native) and own[0].variant.backend != NATIVE:
        return "speedup_native", NATIVE
    return "speedup", _reference(seen)


def _reference(seen: Overview) -> str:
    return next((v.label for v in seen.variants if v.is_reference), "the reference")


def _why_none(own: Sequence[Cell], over: str) -> str:
    if not own:
        return "it was not run there, or every trial failed"
    return f"{over} was not run there, or no two answers can be compared in speed"


def _is_best(own: Speed | None, rivals: Sequence[Speed | None]) -> bool:
    sound = [other for other in rivals if other is not None and other.valid]
    if own not in sound or own is None or len(sound) < 2:
        return False
    return own.is_faster and own.value == max(other.value for other in sound)


def _columns(models: Sequence[str], reference: str) -> list[Column[MethodRow]]:
    decided = Group(f"Decisions at {models[-1]}" if models[-1] else "Decisions")
    return [
        Column("Load", lambda row: row.under.load, css=PLACE,
               small=lambda row: load_words(row.under), sort=lambda row: str(row.under.order)),
        Column("Over", lambda row: row.over, css=PLACE),
        *(_gain(at, model) for at, model in enumerate(models)),
        *([_over_reference(models[-1], reference)] if reference else []),
        Column("brought", lambda row: row.brings or None, group=decided, css="",
               why="nothing is decided, nothing was counted, or it was not run there"),
        Column("pay from", lambda row: row.needs or None, group=decided, css="",
               why="nothing is decided, or the times that it takes are not known or not sound"),
    ]  # fmt: skip


_SPEED = Group("Decode speed over it", "×")
_ALONE = "speed-up"
"""In the place of the model's name, where the run has one."""


def _gain(at: int, model: str) -> Column[MethodRow]:
    def marks(row: MethodRow) -> str:
        own = row.gains[at]
        return "struck" if own and not own.valid else "best" * row.best[at]

    return Column(
        model or _ALONE,
        lambda row: own.value if (own := row.gains[at]) else None,
        ratio,
        group=_SPEED,
        why=lambda row: row.missing[at],
        small=lambda row: own.interval if (own := row.gains[at]) else "",
        marks=marks,
    )


def _over_reference(model: str, reference: str) -> Column[MethodRow]:
    return Column(
        model or _ALONE,
        lambda row: row.whole.value if row.whole else None,
        ratio,
        group=Group(f"Decode speed over {reference}", "×"),
        why=f"{reference} was not run there, or no two answers can be compared in speed",
        small=lambda row: row.whole.interval if row.whole else "",
        marks=lambda row: "struck" if row.whole and not row.whole.valid else "",
    )


def _scope(row: MethodRow) -> BodyRow:
    return BodyRow(row.variant, None, row.under.load, group=(row.under.load, row.engine))
