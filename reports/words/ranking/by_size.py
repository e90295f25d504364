"""Each method at each size of the model over plain decoding on its own engine, and what decisions
have to bring for it to pay there: what a reader holds his own model's decisions against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reports.cells import Cell, Overview
from reports.numbers import ratio
from reports.variants import Variant
from reports.words.break_even import decisions
from reports.words.drafts import Drafting, drafting, engine
from reports.words.ranking.choices import load_words
from reports.words.scale import read_bytes
from reports.words.speed import Speed, speed
from results.compare.pairing import NATIVE


class Gain(NamedTuple):
    """A speed-up at one size."""

    times: str
    interval: str
    css: str
    """``struck`` where it is not valid, ``best`` where no other is higher on the same engine that
    keeps plain decoding's text."""


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method under one load."""

    variant: Variant
    engine: str
    """Equal for those that are compared: the name of its plain decoding."""
    over: str
    gains: Sequence[Gain | None]
    """By model; None where nobody can say."""
    brings: str
    """What the decisions brought at the last size; empty where that is not counted."""
    needs: str
    """What they have to bring to be as fast as plain decoding there."""


class LoadRows(NamedTuple):
    """Every method under one load."""

    load: str
    words: str
    rows: Sequence[MethodRow]


class SizeTable(NamedTuple):
    """A block of rows for each load, a column for each model."""

    models: Sequence[str]
    """The smallest first, on each machine; one empty name where the run has one."""
    loads: Sequence[LoadRows]

    @property
    def has_lossy(self) -> bool:
        """Whether any method does not keep plain decoding's text."""
        return any(row.variant.lossy for load in self.loads for row in load.rows)


def by_model(seen: Overview) -> Iterator[tuple[str, list[Cell]]]:
    """The cells of each model, machine and settings (`Cell.part`), the smallest model first as far
    as that is known: no sentence pools several."""
    found: dict[str, list[Cell]] = {}
    for cell in seen.cells:
        found.setdefault(cell.part, []).append(cell)
    sizes = {name: max(read_bytes(cell.measured) for cell in own) for name, own in found.items()}
    yield from sorted(found.items(), key=lambda pair: sizes[pair[0]])


def by_size(seen: Overview) -> SizeTable | None:
    """The table of a run of several models, or of replayed decisions, which are ranked with nobody;
    replays beside real runs are left out. None for other runs, and without any speed-up."""
    every = [cell for cell in seen.cells if cell.is_measured]
    cells = [cell for cell in every if not cell.variant.is_replay] or every
    if not cells or not (len(seen.models) > 1 or cells[0].variant.is_replay):
        return None
    models = [model for model, _ in by_model(seen)]
    drafts = {one.cell: one for one in drafting(seen)}
    found = []
    for load in dict.fromkeys(c.load for c in sorted(cells, key=lambda cell: cell.order)):
        own = [cell for cell in cells if cell.load == load]
        if rows := list(_rows(seen, own, models, drafts)):
            found.append(LoadRows(load, load_words(own[0]), rows))
    return SizeTable(models, found) if found else None


def _rows(
    seen: Overview, cells: Sequence[Cell], models: Sequence[str], drafts: Mapping[Cell, Drafting]
) -> Iterator[MethodRow]:
    methods = {c.variant.index: c.variant for c in cells if not c.variant.is_reference}
    speeds: dict[int, list[Speed | None]] = {}
    over: dict[int, str] = {}
    engines: dict[int, str] = {}
    for index in sorted(methods):
        own = [cell for cell in cells if cell.variant.index == index]
        metric, over[index] = _metric(seen, own)
        found = [speed([c for c in own if c.part == model], metric) for model in models]
        if any(found):
            engines[index] = NATIVE if methods[index].backend == NATIVE else over[index]
            speeds[index] = found
    order = list(dict.fromkeys(engines.values()))
    for index in sorted(speeds, key=lambda i: (order.index(engines[i]), i)):
        alike = [i for i in speeds if (over[i], engines[i]) == (over[index], engines[index])]
        rivals = [speeds[i] for i in alike if not methods[i].lossy]
        last = [c for c in cells if c.variant.index == index and c.part == models[-1]]
        yield MethodRow(
            methods[index],
            engines[index],
            over[index],
            [_gain(found, [row[at] for row in rivals]) for at, found in enumerate(speeds[index])],
            *decisions(seen, last, drafts),
        )


def _metric(seen: Overview, own: Sequence[Cell]) -> tuple[str, str]:
    """The speed-up over plain decoding on the same engine where it was run, else over the
    reference; and the name of what it is over."""
    native = [cell.value("speedup_native") for cell in own if engine(cell) == NATIVE]
    if any(value is not None for value in native) and own[0].variant.backend != NATIVE:
        return "speedup_native", NATIVE
    return "speedup", next((v.label for v in seen.variants if v.is_reference), "the reference")


def _gain(found: Speed | None, rivals: Sequence[Speed | None]) -> Gain | None:
    if found is None:
        return None
    if not found.valid:
        return Gain(f"{ratio(found.value)}×", found.interval, "struck")
    sound = [other for other in rivals if other is not None and other.valid]
    is_best = found in sound and found.value == max(other.value for other in sound)
    css = "best" * (found.is_faster and is_best and len(sound) > 1)
    return Gain(f"{ratio(found.value)}×", found.interval, css)
