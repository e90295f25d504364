"""What a batch costs early exits, against theory, and what checks and filling cost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.figures import batch_exits as figures
from reports.figures.batch_exits import CellExits
from reports.numbers import counted, percent, significant
from reports.panels import Panel, PanelGroup, Place, panels
from reports.sections import Section
from reports.tables import Column, Group, build, places, scope
from reports.words import techniques
from reports.words.findings import place
from results.metrics import batch_exits
from results.metrics.batch_exits import BatchExits

_ENDS = "A step ends when all its sequences are confident."
_APART = "Sequences of {} leave one by one, and wait for no other."
_NO_WAIT = "its sequences leave one by one"
_NOTHING = (
    f"Nothing is drawn: it takes {figures.FEWEST_STEPS} steps of two or more sequences that leave "
    "together and do not all need the same layers."
)
_DRAWN = (
    "● where batches left (larger: more steps), ○ where batches of independent sequences "
    "with the exits of this load would, – what each sequence needs alone. The curve is ○ from "
    f"exits counted under the least load, dashed are all layers. Means over fewer than "
    f"{figures.FEWEST_STEPS} steps stand in the table alone, and steps that read prompts nowhere."
)


def section(seen: Overview, _: Samples) -> Section | None:
    """Exit layers against the batch, with theory, and a table of what exits cost."""
    leaving = [cell for cell in seen.cells if techniques.leaves_early(cell)]
    loads = {cell: load for cell in leaving if (load := _load(cell)) is not None}
    if not loads:
        return None
    rows = list(loads.values())
    apart = _apart(rows)
    groups: list[PanelGroup] = []
    together = [cell for cell in loads if cell.variant.name not in apart]
    for index in dict.fromkeys(cell.variant.index for cell in together):
        own = [cell for cell in loads if cell.variant.index == index]
        if found := panels(seen, partial(_curve, loads), own, per="workload"):
            title = own[0].variant.label
            groups.append(PanelGroup(found, title, fold=True, open=not groups))
    said = [_ENDS] * bool(together) + [_APART.format(", ".join(apart))] * bool(apart)
    note = " ".join([*said, _DRAWN if groups else _NOTHING])
    table = build(_columns(rows, apart), rows, lambda load: scope(load.cell))
    title, words = "Exits and batch size", list(_sentences(rows, apart))
    finding = _finding([load for load in rows if load.cell.variant.name not in apart])
    return Section("exitbatch", title, note, groups, table, words, "Exits and batch", finding)


def _apart(rows: Sequence[CellExits]) -> list[str]:
    """The backends that had real batches in which nobody ever left deeper than it had to alone."""
    names = dict.fromkeys(load.cell.variant.name for load in rows if _batched(load))
    waited = {load.cell.variant.name for load in rows if _waited(load)}
    return [name for name in names if name not in waited]


def _waited(load: CellExits) -> bool:
    """Whether some sequence left with a batch, and not where it was confident itself."""
    counts = (load.cell.metrics["exits_by_layer"] or {}).values()
    return any(one["exits"] != one["own_exits"] for one in counts)


def _batched(load: CellExits) -> bool:
    return _varies(load) and (load.cell.value("mean_decode_batch") or 0.0) > 1.5


def _finding(rows: Sequence[CellExits]) -> str:
    """How much deeper batches leave than their sequences would alone."""
    if not rows:
        return "Sequences leave one by one: no batch holds them back."
    enough = [load for load in rows if _has_steps(load)]
    if not enough:
        return f"No load has {figures.FEWEST_STEPS} steps without a prompt."
    most = max(enough, key=_deeper)
    batch = significant(most.cell.value("mean_decode_batch") or 0.0)
    return (
        f"Batches left up to {significant(_deeper(most))} layers deeper than their sequences would "
        f"alone ({place(most.cell)}: {batch} sequences together, of "
        f"{len(most.own.cumulative)} layers)."
    )


def _deeper(load: CellExits) -> float:
    # means of sums: what is less than a millionth of a layer is rounding
    return round(_layer(load.found) - load.own.layer(1), 6)


def _has_steps(load: CellExits) -> bool:
    return sum(one.steps for one in load.found) >= figures.FEWEST_STEPS


def _load(cell: Cell) -> CellExits | None:
    own = batch_exits.profile(cell.metrics)
    return CellExits(cell, batch_exits.measured(cell.metrics), own) if own else None


def _varies(load: CellExits) -> bool:
    """Whether sequences have exits of their own, and at several layers: else every batch size gives
    the same layer, or whatever was asked for."""
    asked = techniques.technique(load.cell) in techniques.CONFIDENT
    return asked and len(set(load.own.cumulative) | {0.0, 1.0}) > 2


def _curve(loads: Mapping[Cell, CellExits], place: Place) -> Iterator[Panel]:
    own = [loads[cell] for cell in place.cells]
    shown = [
        load._replace(found=[x for x in load.found if x.steps >= figures.FEWEST_STEPS])
        for load in own
    ]
    largest = max((one.batch for load in shown for one in load.found), default=0)
    if largest < 2 or not any(_varies(load) for load in own):
        return
    title = f"Exit layer against batch size: {techniques.label(place.cells[0])}, {place.workload}"
    alone = _smallest(own).own
    paint = partial(figures.against_batch, loads=shown, alone=alone, largest=largest)
    yield Panel(paint, title)


def _smallest(loads: Sequence[CellExits]) -> CellExits:
    """The load with the fewest sequences together: at best one at a time."""
    return min(loads, key=lambda load: load.cell.value("mean_decode_batch") or 0.0)


def _sentences(loads: Sequence[CellExits], apart: Collection[str]) -> Iterator[str]:
    """For each load (and model) with real batches and each backend, whose engines share batches in
    ways of their own: what exits of one's own need, what theory and batches. No theory is of those
    who leave `apart`."""
    groups = dict.fromkeys((load.cell.condition, load.cell.variant.name) for load in loads)
    for condition, backend in groups:
        own = [
            load
            for load in loads
            if (load.cell.condition, load.cell.variant.name) == (condition, backend)
            and _batched(load)
            and _has_steps(load)
        ]
        if own:
            yield f"{backend} under {condition}: {_sentence(own, apart=backend in apart)}"


def _sentence(own: Sequence[CellExits], *, apart: bool) -> str:
    batch = fmean([load.cell.value("mean_decode_batch") or 0.0 for load in own])
    depth = fmean([float(len(load.own.cumulative)) for load in own])
    measured = fmean([_layer(load.found) for load in own])
    begin = f"with {significant(batch)} sequences in a token's step"
    over = f"(means over {counted(len(own), 'cell')})"
    if apart:
        left = f"layer {significant(measured)} of {depth:.0f}"
        return f"{begin} each left by itself, at {left} {over}."
    alone = fmean([load.own.layer(1) for load in own])
    theory = fmean([_layer(batch_exits.expected(load.found, load.own)) for load in own])
    kept = (depth - measured) / (depth - alone) if depth > alone else 0.0
    return (
        f"{begin} a sequence alone would leave at layer {significant(alone)} of {depth:.0f}. "
        f"Batches of independent sequences would leave at {significant(theory)}; they left at "
        f"{significant(measured)}, and so skipped {percent(min(max(kept, 0.0), 1.0))}% of what "
        f"sequences alone would skip {over}."
    )


def _layer(found: Sequence[BatchExits]) -> float:
    return batch_exits.mean_layer(found) or 0.0


def _columns(loads: Sequence[CellExits], apart: Collection[str]) -> list[Column[CellExits]]:
    layer, share = Group("Exit layer"), Group("Share", "%")

    def theory(load: CellExits) -> float | None:
        if load.cell.variant.name in apart:
            return None
        return _layer(batch_exits.expected(load.found, load.own))

    def at_least_load(load: CellExits) -> float | None:
        if load.cell.variant.name in apart:
            return None
        key = load.cell.variant, load.cell.workload
        same = [x for x in loads if (x.cell.variant, x.cell.workload) == key]
        return _layer(batch_exits.expected(load.found, _smallest(same).own))

    def share_of(title: str, metric: str, help: str) -> Column[CellExits]:
        return Column(
            title, lambda load: load.cell.value(metric), percent, help=help, group=share,
            why="the run took no times of steps (step_times)",
        )  # fmt: skip

    return [
        Column("Technique", lambda load: techniques.label(load.cell), css=""),
        *places(lambda load: load.cell),
        Column(
            "Steps", lambda load: sum(one.steps for one in load.found),
            lambda steps: f"{round(steps):,}",
            help="that decoded without reading prompts, all repeats",
        ),
        Column(
            "Batch", lambda load: load.cell.value("mean_decode_batch"),
            help="sequences decoded together with a token's own, on average",
        ),
        Column(
            "alone", lambda load: load.own.layer(1), group=layer,
            help="if each sequence left when it is confident itself: no batch goes below",
        ),
        Column(
            "theory", theory, group=layer, why=_NO_WAIT,
            help="batches of independent sequences, with exits as counted under this load",
        ),
        Column(
            "at least load", at_least_load, group=layer, why=_NO_WAIT,
            help="the same with exits as counted under the load with the smallest batches",
        ),
        Column("measured", lambda load: _layer(load.found), group=layer,
               help="where the batches left"),
        share_of("mixed", "mixed_step_share",
                 "tokens decoded in steps that also read a prompt: all layers"),
        share_of("checks", "check_time_share",
                 "of the time of the layers: asking for confidence"),
        share_of("filling", "fill_time_share",
                 "of the time of the layers: caches of skipped layers"),
    ]  # fmt: skip
