"""What a batch costs early exits, against theory, and what checks and filling cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from reports.cells import Cell
from reports.figures import batch_exits as figures
from reports.figures.panel import NARROW_IN, WIDTH_IN, Panel, draw
from reports.numbers import counted, percent, significant
from reports.sections import techniques
from reports.sections.figures import FigureSection, PanelGroup
from reports.tables import BodyCell, BodyRow, HeaderCell, Table
from results.metrics import batch_exits
from results.metrics.batch_exits import BatchExits

_HEADS = (
    ("Technique", "", ""),
    ("Workload", "", ""),
    ("Load", "", ""),
    ("Steps", "", "that decoded without reading prompts, all repeats"),
    ("Batch", "", "sequences decoded together with a token's own, on average"),
)
_LAYERS = (
    ("alone", "if each sequence left when it is confident itself: no batch goes below"),
    ("theory", "batches of independent sequences, with exits as counted under this load"),
    ("at least load", "the same with exits as counted under the load with the smallest batches"),
    ("measured", "where the batches left"),
)
_SHARES = (
    ("mixed", "mixed_step_share", "tokens decoded in steps that also read a prompt: all layers"),
    ("checks", "check_time_share", "of the time of the layers: asking for confidence"),
    ("filling", "fill_time_share", "of the time of the layers: caches of skipped layers"),
)
_ENDS = "A step ends when all its sequences are confident."
_NOTHING = (
    f"Nothing is drawn: it takes {figures.FEWEST_STEPS} steps of two or more sequences that do not "
    "all need the same layers."
)
_NOTE = (
    f"{_ENDS} ● where batches left (larger: more steps), ○ where batches of independent sequences "
    "with the exits of this load would, – what each sequence needs alone. The curve is ○ from "
    f"exits counted under the least load, dashed are all layers. Means over fewer than "
    f"{figures.FEWEST_STEPS} steps, and steps that read prompts, are left out."
)


def section(cells: Sequence[Cell]) -> FigureSection | None:
    """Exit layers against the batch, with theory, and a table of what exits cost."""
    loads = {cell: load for cell in cells if (load := _load(cell)) is not None}
    if not loads:
        return None
    groups: list[PanelGroup] = []
    for place, index in enumerate(dict.fromkeys(cell.variant.index for cell in loads)):
        own = [load for cell, load in loads.items() if cell.variant.index == index]
        panels = list(_panels(own, f"xb{place}-"))
        title = techniques.label(own[0].cell)
        groups += [PanelGroup(panels, title, fold=True, open=not groups)][: len(panels)]
    note = _NOTE if groups else f"{_ENDS} {_NOTHING}"
    return FigureSection(
        "exitbatch",
        "Exits and batch size",
        "Exits and batch",
        note,
        groups,
        _table(list(loads.values())),
        list(_sentences(list(loads.values()))),
    )


def _load(cell: Cell) -> figures.CellExits | None:
    own = batch_exits.profile(cell.metrics)
    return figures.CellExits(cell, batch_exits.measured(cell.metrics), own) if own else None


def _varies(load: figures.CellExits) -> bool:
    """Whether sequences have exits of their own, and at several layers: else every batch size gives
    the same layer, or whatever was asked for."""
    asked = techniques.technique(load.cell) in techniques.CONFIDENT
    return asked and len(set(load.own.cumulative) | {0.0, 1.0}) > 2


def _panels(loads: Sequence[figures.CellExits], prefix: str) -> Iterator[Panel]:
    workloads = list(dict.fromkeys(load.cell.workload for load in loads))
    width = NARROW_IN if len(workloads) == 4 else WIDTH_IN
    for place, workload in enumerate(workloads):
        own = [load for load in loads if load.cell.workload == workload]
        shown = [
            load._replace(found=[x for x in load.found if x.steps >= figures.FEWEST_STEPS])
            for load in own
        ]
        largest = max((one.batch for load in shown for one in load.found), default=0)
        if largest < 2 or not any(_varies(load) for load in own):
            continue
        alone = _smallest(own).own
        words = f"Exit layer against batch size: {techniques.label(own[0].cell)}, {workload}"
        paint = partial(figures.against_batch, loads=shown, alone=alone, largest=largest)
        svg = draw(paint, prefix=f"{prefix}{place}-", title=words, width_in=width)
        yield Panel(svg, workload, workload)


def _smallest(loads: Sequence[figures.CellExits]) -> figures.CellExits:
    """The load with the fewest sequences together: at best one at a time."""
    return min(loads, key=lambda load: load.cell.value("mean_decode_batch") or 0.0)


def _sentences(loads: Sequence[figures.CellExits]) -> Iterator[str]:
    """For each load with real batches: what exits of one's own need, what theory and batches."""
    for name in dict.fromkeys(load.cell.load for load in loads):
        own = [
            load
            for load in loads
            if load.cell.load == name
            and _varies(load)
            and (load.cell.value("mean_decode_batch") or 0.0) > 1.5
        ]
        if not own:
            continue
        depth = _mean([float(len(load.own.cumulative)) for load in own])
        alone = _mean([load.own.layer(1) for load in own])
        theory = _mean([_layer(batch_exits.expected(load.found, load.own)) for load in own])
        measured = _mean([_layer(load.found) for load in own])
        kept = (depth - measured) / (depth - alone) if depth > alone else 0.0
        batch = _mean([load.cell.value("mean_decode_batch") or 0.0 for load in own])
        yield (
            f"Under {name}, with {significant(batch)} sequences in a token's step, a sequence "
            f"alone would leave at layer {significant(alone)} of {depth:.0f}. Batches of "
            f"independent sequences would leave at {significant(theory)}; they left at "
            f"{significant(measured)}, and so skipped {percent(min(max(kept, 0.0), 1.0))}% of what "
            f"exits of one's own would skip (means over {counted(len(own), 'cell')})."
        )


def _layer(found: Sequence[BatchExits]) -> float:
    return batch_exits.mean_layer(found) or 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _table(loads: Sequence[figures.CellExits]) -> Table:
    heads = [HeaderCell("Backend", rows=2, column=0)]
    for column, (title, unit, words) in enumerate(_HEADS, start=1):
        css = "num" if column > 3 else ""
        heads.append(HeaderCell(title, unit, css, words, rows=2, column=column))
    subheads = []
    first = len(heads)
    heads.append(HeaderCell("Exit layer", css="group begin", span=len(_LAYERS)))
    heads.append(HeaderCell("Share", "%", css="group begin", span=len(_SHARES)))
    named = [*_LAYERS, *((title, words) for title, _, words in _SHARES)]
    for place, (title, words) in enumerate(named):
        css = "num begin" if place in (0, len(_LAYERS)) else "num"
        subheads.append(HeaderCell(title, css=css, column=first + place, help=words))
    return Table(tuple(heads), tuple(subheads), tuple(_rows(loads)))


def _rows(loads: Sequence[figures.CellExits]) -> Iterator[BodyRow]:
    before: tuple[str, str] | None = None
    for load in loads:
        cell = load.cell
        same = [
            x for x in loads if (x.cell.variant, x.cell.workload) == (cell.variant, cell.workload)
        ]
        css = "first-of-group" if (cell.workload, cell.load) != before else ""
        before = (cell.workload, cell.load)
        name = techniques.label(cell)
        items = (
            BodyCell(name, name, css=""),
            BodyCell(cell.workload, cell.workload, css=""),
            BodyCell(cell.load, str(cell.order), css=""),
            _count(sum(one.steps for one in load.found)),
            _value(cell.value("mean_decode_batch"), "num"),
            _value(load.own.layer(1), "num begin"),
            _value(_layer(batch_exits.expected(load.found, load.own)), "num"),
            _value(_layer(batch_exits.expected(load.found, _smallest(same).own)), "num"),
            _value(_layer(load.found), "num"),
            *(_share(cell, metric, first=metric == _SHARES[0][1]) for _, metric, _ in _SHARES),
        )
        validity = "valid" if cell.valid else "not valid"
        yield BodyRow(cell.variant, cell.workload, cell.load, validity, css, items)


def _count(value: float) -> BodyCell:
    return BodyCell(f"{round(value):,}", repr(value))


def _value(value: float | None, css: str) -> BodyCell:
    if value is None:
        return BodyCell(css=css, undefined="nothing was counted")
    return BodyCell(significant(value), repr(value), css)


def _share(cell: Cell, metric: str, *, first: bool) -> BodyCell:
    css = "num begin" if first else "num"
    value = cell.value(metric)
    if value is None:
        return BodyCell(css=css, undefined="the run took no times of steps (step_times)")
    return BodyCell(percent(value), repr(value), css)
