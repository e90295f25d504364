"""Each method at each size of the model over plain decoding on its own engine, and what decisions
have to bring for it to pay there: what a reader holds his own model's decisions against."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from reports.cells import Cell, Overview
from reports.numbers import ratio
from reports.tables import PLACE, BodyRow, Column, Group, Table, build
from reports.variants import Variant
from reports.words.break_even import decisions
from reports.words.drafts import Drafting, drafting, engine
from reports.words.ranking.choices import load_words
from reports.words.ranking.races import common_scopes, sound_scopes
from reports.words.scale import read_bytes
from reports.words.speed import Speed, speed
from results.compare.pairing import NATIVE


class Gain(NamedTuple):
    """The speed-up of a method on one model."""

    cells: Sequence[Cell]
    """Those it is over."""
    speed: Speed | None
    """None where nobody can say."""
    scopes: Collection[tuple[str, str, str]]
    """Where it is valid."""
    every: int
    """Workloads that ran on the model under the load."""
    is_apart: bool
    """Whether no workload is valid for it and all that stand beside it."""

    @property
    def small(self) -> str:
        """Its interval and, where that is not all, of how many workloads it is, or of which where
        those beside it are of others."""
        if self.speed is None:
            return ""
        names = dict.fromkeys(c.workload.removesuffix(f" on {c.model}") for c in self.cells)
        some = f"{len(names)} of {self.every} workloads"
        if self.is_apart:
            some = f"{', '.join(names)} alone"
        some *= bool(self.scopes) and len(names) < self.every
        return ", ".join(filter(None, (self.speed.interval, some)))

    @property
    def marks(self) -> str:
        """Its class where it must not be believed."""
        return "struck" * (self.speed is not None and not self.speed.valid)


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method under one load."""

    variant: Variant
    under: Cell
    """One of those under the load."""
    engine: str
    """Equal for those on one engine, as far as that is known."""
    over: str
    on: Sequence[Gain]
    """By model."""
    missing: Sequence[str]
    """By model, why not."""
    best: Sequence[bool]
    """Where no other is faster on the same engine that keeps plain decoding's text."""
    brings: str
    """What the decisions brought on the last model; empty where that is not counted."""
    needs: str
    """What they have to bring to be as fast as plain decoding there."""
    last: Gain
    """On the last model over the run's reference, whatever engine that is of."""

    @property
    def gains(self) -> list[Speed | None]:
        """By model; None where nobody can say."""
        return [gain.speed for gain in self.on]

    @property
    def every(self) -> list[Gain]:
        """All that is shown."""
        return [*self.on, self.last]

    @property
    def whole(self) -> Speed | None:
        """`last`, as a number."""
        return self.last.speed


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
    def has_apart(self) -> bool:
        """Whether numbers name their workloads, for none is valid for all that stand together."""
        return any(gain.is_apart and gain.scopes for row in self.rows for gain in row.every)

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
    groups: dict[int, list[Cell]] = {}
    for cell in cells:
        if not cell.variant.is_reference:
            groups.setdefault(cell.variant.index, []).append(cell)
    kinds = {index: _metric(seen, own) for index, own in groups.items()}
    on: dict[int, list[Gain]] = {}
    for kind in dict.fromkeys(kinds.values()):
        beside = {index: own for index, own in groups.items() if kinds[index] == kind}
        on |= _gains(beside, kind[0], models, cells)
    last = _gains(groups, "speedup", models[-1:], cells)
    found: list[MethodRow] = []
    for index, own in groups.items():
        if any(gain.speed for gain in on[index]):
            variant, (_, over) = own[0].variant, kinds[index]
            why = [_why_none(gain.cells, over) for gain in on[index]]
            decided = decisions(seen, on[index][-1].cells, drafts)
            name = engine(own[0]) or variant.backend
            (whole,) = last[index]
            row = MethodRow(variant, cells[0], name, over, on[index], why, (), *decided, whole)
            found.append(row)
    order = list(dict.fromkeys(row.engine for row in found))
    for row in sorted(found, key=lambda row: (order.index(row.engine), row.variant.index)):
        alike = [r for r in found if (r.engine, r.over) == (row.engine, row.over)]
        rivals = [r.on for r in alike if not r.variant.lossy]
        best = [_is_best(own, [r[at] for r in rivals]) for at, own in enumerate(row.on)]
        yield replace(row, best=[is_best and not row.variant.lossy for is_best in best])


def _gains(
    groups: Mapping[int, Sequence[Cell]],
    metric: str,
    models: Sequence[str],
    cells: Sequence[Cell],
) -> dict[int, list[Gain]]:
    """By variant its speed-up on each model, over the workloads on which all of `groups` that have
    valid ones have one: means over other workloads do not compare. Over all of its own where there
    is none. `cells`: all of the load."""
    found: dict[int, list[Gain]] = {index: [] for index in groups}
    for model in models:
        here = {index: [c for c in own if c.model == model] for index, own in groups.items()}
        common = common_scopes(here, metric)
        every = len({cell.workload for cell in cells if cell.model == model})
        for index, own in here.items():
            sound = sound_scopes(own, metric)
            sound = common & sound or sound
            kept = [cell for cell in own if cell.place in sound] or own
            found[index].append(Gain(kept, speed(kept, metric), sound, every, not common))
    return found


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


def _is_best(own: Gain, rivals: Sequence[Gain]) -> bool:
    sound = [(one.scopes, one.speed) for one in rivals if one.speed and one.speed.valid]
    if own.speed is None or not own.speed.is_faster or len(sound) < 2:
        return False
    return all(on == own.scopes and own.speed.value >= other.value for on, other in sound)


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
    return Column(
        model or _ALONE,
        lambda row: own.value if (own := row.gains[at]) else None,
        ratio,
        group=_SPEED,
        why=lambda row: row.missing[at],
        small=lambda row: row.on[at].small,
        marks=lambda row: row.on[at].marks or "best" * row.best[at],
    )


def _over_reference(model: str, reference: str) -> Column[MethodRow]:
    return Column(
        model or _ALONE,
        lambda row: row.whole.value if row.whole else None,
        ratio,
        group=Group(f"Decode speed over {reference}", "×"),
        why=f"{reference} was not run there, or no two answers can be compared in speed",
        small=lambda row: row.last.small,
        marks=lambda row: row.last.marks,
    )


def _scope(row: MethodRow) -> BodyRow:
    return BodyRow(row.variant, None, row.under.load, group=(row.under.load, row.engine))
