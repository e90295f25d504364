"""Beside a run of the small bundled model: what became of such ratios on larger ones, as stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from reports.cells import Cell, Overview, overview
from reports.collect import Samples
from reports.numbers import ratio, significant
from reports.sections import Section
from reports.sections.speed.sizes import NATIVE_SPEED, Sized, sized
from reports.tables import BodyRow, Column, Group, bounds, build
from reports.text import visible
from reports.variants import KINDS, Variant
from reports.words.break_even import decisions
from reports.words.doubts.overhead import BOUND
from reports.words.drafts import drafting
from reports.words.scale import SMALL
from reports.words.speed import passing_one, speed
from results import load
from results.compare.pairing import NATIVE
from results.run import Run

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
RECORD = "cpu/sizes"
ID = "stored-sizes"
_NOTE = (
    "The bundled model lives in a processor's cache, and much of its steps is overhead. So the "
    "same methods ran on {models} of random weights (prompts of {workload}; {repeats}), "
    "with the exits and acceptances that this model decided: measured cost, replayed decisions, on "
    "{machine}, {day}. Another model accepts and leaves otherwise. A stored record: 'decodebench "
    "report results/reference/{record}' draws it, 'decodebench run experiments/sizes_all.yaml "
    "{shapes}' measures it here. Larger models, GPUs and more requests in flight are not in it: "
    "docs/models.md, 'Would it hold at 8B?', has what was measured of those."
)
_DECIDED = Group("Decisions brought", "")


class Grown(NamedTuple):
    """A method under one load on each of a record's models."""

    variant: Variant
    load: str
    on: Mapping[str, Sized]
    """By model, the smallest first."""
    there: str = ""
    """What its decisions brought on the largest."""
    here: str = ""
    """Likewise in this run, on the record's workload where it was asked."""
    alike: bool = True
    """Whether the run has it with the record's options, as far as options tell its variants
    apart."""


class LargerRatio(NamedTuple):
    """What a speed-up came to on a larger model."""

    model: str
    value: float
    interval: str

    @property
    def times(self) -> str:
        """As it is shown."""
        return f"{ratio(self.value)}×"


def section(seen: Overview, _: Samples) -> Section | None:
    """A row for each method of the run under each load of the record; None for runs of other
    models, of other methods, and without a record."""
    found = _grown(seen)
    if not found:
        return None
    run, stored = _stored(REFERENCE / RECORD)
    models = list(dict.fromkeys(model for own in found for model in own.on))
    note = _NOTE.format(
        machine=visible(str(run.stored[0].record.environment.get("cpu"))),
        day=max(str(row["started_at"]) for row in stored.rows)[:10],
        record=RECORD,
        models=", ".join(models),
        workload=next(iter(found[0].on.values())).task,
        repeats=_repeats([on.cell for own in found for on in own.on.values()]),
        shapes=" ".join(f"--shape {model}" for model in models),
    )
    table = build(_columns(models, found, _reference(stored)), found, _row)
    return Section(ID, "On larger models", note, table=table, short="Larger models", is_open=True)


def _repeats(cells: Sequence[Cell]) -> str:
    sound = [cell.valid_trials for cell in cells]
    few, most = min(sound), max(sound)
    told = f"{few} to {most} sound repeats" if few < most else f"{few} sound repeats"
    return told + ": with 2 an interval holds the truth in about nine cases of ten" * (few == 2)


def on_larger(seen: Overview) -> dict[tuple[int, str, str], LargerRatio]:
    """By variant, load and what it is over (the record's reference, or plain decoding on our
    engine): the ratio on the largest model on which it is sound."""
    grown = _grown(seen)
    if not grown:
        return {}
    overs = {_reference(_stored(REFERENCE / RECORD)[1]): "speedup", NATIVE: NATIVE_SPEED}
    found = {}
    for own in (one for one in grown if one.alike):
        for over, metric in overs.items():
            for model, on in own.on.items():
                if (value := on.cell.value(metric)) and on.cell.holds(metric):
                    told = LargerRatio(model, value, bounds(on.cell, metric))
                    found[own.variant.index, own.load, over] = told
    return found


def cells(seen: Overview) -> list[Cell]:
    """The cells of the record that the section shows."""
    return [on.cell for own in _grown(seen) for on in own.on.values()]


def _grown(seen: Overview) -> list[Grown]:
    """What the record has of the run's methods, in the run's colours."""
    if {row["model"] for row in seen.rows} != {SMALL} or not (REFERENCE / RECORD).is_dir():
        return []
    _, stored = _stored(REFERENCE / RECORD)
    found = sorted(sized(stored), key=lambda own: (own.cell.order, own.cell.variant.index))
    ours = list({c.variant.index: c for c in reversed(seen.cells) if c.is_measured}.values())
    drafts = {one.cell: one for part in (seen, stored) for one in drafting(part)}
    grown = []
    for key in dict.fromkeys((o.cell.load, o.cell.variant.index) for o in found):
        same = [o for o in found if (o.cell.load, o.cell.variant.index) == key]
        variant = same[0].cell.variant
        look, alike = _look(same[0].cell, ours)
        if look is not None:
            shown = dataclasses.replace(variant, index=look.index, slot=look.slot, style=look.style)
            load, task = same[0].cell.load, same[0].task
            own = [c for c in seen.cells if c.variant is look]
            own = [c for c in own if c.load == load] or own
            own = [c for c in own if c.workload == task] or own
            there, _ = decisions(stored, [same[-1].cell], drafts)
            here, _ = decisions(seen, own, drafts)
            on = {o.cell.model: o for o in same}
            grown.append(Grown(shown, load, on, there, here if alike else "", alike))
    return grown


def _look(stored: Cell, ours: Sequence[Cell]) -> tuple[Variant | None, bool]:
    """The variant of the run that a cell of the record is of, and whether it is of its options;
    `ours`: a cell of each variant. Where options tell the run's own of a kind apart it is the first
    that has the record's, else the first of all."""
    kind = [cell for cell in ours if _kind(cell) == _kind(stored)]
    names = {name for cell in kind for name in cell.variant.options} - {"replay"}
    asked = {name: [cell.variant.options.get(name) for cell in kind] for name in names}
    telling = [name for name, values in asked.items() if any(v != values[0] for v in values)]
    same = [cell for cell in kind if all(_has(cell, name, stored) for name in telling)]
    variants = (cell.variant for cell in same or kind)
    return min(variants, key=lambda variant: variant.index, default=None), bool(same)


def _has(own: Cell, name: str, stored: Cell) -> bool:
    """Whether an option was asked for as in the record, or took effect as there."""
    if own.variant.options.get(name) == stored.variant.options.get(name):
        return True
    return name in own.effective and own.effective[name] == stored.effective.get(name)


def _kind(cell: Cell) -> tuple[Any, ...]:
    """Backend and method: another one has another speed-up."""
    return cell.variant.backend, *(cell.effective.get(name) for name in KINDS)


def _reference(stored: Overview) -> str:
    return next(cell.variant.label for cell in stored.cells if cell.variant.is_reference)


@cache
def _stored(folder: Path) -> tuple[Run, Overview]:
    run = load(folder)
    return run, overview(run)


def _columns(
    models: Sequence[str], found: Sequence[Grown], reference: str
) -> tuple[Column[Grown], ...]:
    weights = {model: on.size_bytes for own in found for model, on in own.on.items()}
    over = Group(f"Over {reference}", "×")
    plain = Group("Over plain decoding on its own engine", "×")
    return (
        Column("Load", lambda own: own.load, css=""),
        *(_column(model, weights[model], plain, own_engine=True) for model in models),
        *(_column(model, weights[model], over, own_engine=False) for model in models),
        Column("there", lambda own: own.there, css="", group=_DECIDED),
        Column("here", lambda own: own.here, css="", group=_DECIDED),
        Column("", partial(_remark, reference=reference), css=""),
    )


def _column(model: str, size: int, group: Group, *, own_engine: bool) -> Column[Grown]:
    def metric(own: Grown) -> str:
        return own.on[model].metric if own_engine else "speedup"

    def value(own: Grown) -> float | None:
        on = own.on.get(model)
        if on is None or (not own_engine and on.plain is not None and on.metric == "speedup"):
            return None
        return on.over_plain if own_engine else on.cell.value("speedup")

    def holds(own: Grown) -> bool:
        return own.on[model].cell.holds(metric(own))

    return Column(
        model, value, ratio, f"{significant(size / 1e9, 2)} GB", "read by a pass", group,
        why="its engine's plain decoding is the same, or is itself",
        small=lambda own: bounds(own.on[model].cell, metric(own)),
        marks=lambda own: "struck" * (value(own) is not None and not holds(own)),
    )  # fmt: skip


def _remark(own: Grown, reference: str) -> str:
    """Whether it ran with other options there, which way a speed-up over its engine's plain
    decoding that is valid on all of them passes 1, and where overhead decides up to the largest
    model."""
    last = max(own.on.values(), key=lambda on: on.size_bytes)
    unknown = f"{BOUND} at {last.cell.model} too: unknown beyond"
    options = "" if own.alike else "with other options than here"
    if last.plain_bound == last.bound or not last.over_plain:
        told = unknown * last.bound
    else:
        told = f"over {reference if last.bound else 'plain'} {unknown}"
    end = "" if last.plain_bound or not last.over_plain else _end(own)
    return "; ".join(filter(None, (options, end, told)))


def _end(own: Grown) -> str:
    told = [on for on in own.on.values() if on.over_plain]
    if not all(on.cell.holds(on.metric) for on in told):
        return ""
    pooled = ((on.size_bytes, speed([on.cell], on.metric)) for on in told)
    where = passing_one([(size, found) for size, found in pooled if found is not None])
    return where.words if where else ""


def _row(own: Grown) -> BodyRow:
    return BodyRow(own.variant, None, own.load, group=own.load)
