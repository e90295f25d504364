"""Predicted against measured speed-up, and what the difference is made of.

The factors are those of `results.metrics.exit_costs`: measured = predicted x share of the decode
time that the counted passes take x (autoregressive's decode time / its cost as measured
beforehand). The last is what is left, so that the three always come to the measured value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import geometric_mean
from typing import NamedTuple

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.figures import exits as figures
from reports.numbers import counted, percent, ratio
from reports.panels import Panel, Place, group, panels
from reports.sections import Section
from reports.tables import BodyRow, Column, Group, bounds, build, judged_scope, places
from reports.words.findings import span
from reports.words.techniques import predicts_early
from results.compare.pairing import NATIVE

_NOTE = (
    f"● measured over {NATIVE} with its 95% interval, ○ predicted from the passes that ran at "
    "the costs measured beforehand, ❘ promised on the calibration text. Measured = predicted "
    "× passes × autoregressive. One request at a time: under other loads requests share passes. "
    "'Passes' are the passes that ran, at what each cost alone beforehand, over the measured "
    "decode time: not the share that passes took in the trial, which 'Where the time of a step "
    "goes' has. So this share and the engine's there do not add up to 1."
)


def section(seen: Overview, _: Samples) -> Section | None:
    """A panel per load, and a row per cell: promised, predicted, measured, and the factors from one
    to the next. None where nothing was predicted."""
    found = [own for cell in seen.cells if predicts_early(cell) and (own := factors(cell))]
    if not found:
        return None
    cells = [own.cell for own in found]
    title = "Predicted and measured speed-up"
    groups = group(panels(seen, partial(_speedups, title), cells, per="load"))
    table = build(COLUMNS, found, _row)
    words, finding = sentences(cells), _finding(found)
    return Section("prediction", title, _NOTE, groups, table, words, "Prediction", finding)


def _finding(found: Sequence[Factors]) -> str:
    sound = [own for own in found if own.cell.holds("speedup_native")] or found
    measured = span((own.measured for own in sound), ratio)
    apart = span((own.measured / own.predicted for own in sound), ratio)
    doubt = "" if sound[0].cell.holds("speedup_native") else ", none valid"
    cells = counted(len(sound), "cell")
    return f"Measured {measured}×, which is {apart} times the prediction ({cells}{doubt})."


def _speedups(title: str, place: Place) -> Iterator[Panel]:
    paint = partial(figures.predicted_and_measured, cells=place.cells)
    yield Panel(paint, f"{title} by workload and backend{place.words}")


class Factors(NamedTuple):
    """One cell's speed-ups over autoregressive, and the factors between them."""

    cell: Cell
    promised: float | None
    """On the calibration text."""
    predicted: float
    """From the cell's own exits, further rows charged."""
    rows: float
    """What further rows make of the prediction without them; at most 1."""
    passes: float
    """Share of the decode time that the counted passes take, at their costs."""
    native: float
    """autoregressive's decode time / its cost as measured beforehand."""
    measured: float


def factors(cell: Cell) -> Factors | None:
    """None unless the cell has costs, exits and a speed-up over autoregressive, and one request at
    a time: others share passes, of which the prediction knows nothing."""
    if cell.load_kind != "closed" or cell.load_value != 1:
        return None
    predicted, measured = cell.value("predicted_speedup"), cell.value("speedup_native")
    one_row, passes = cell.value("predicted_speedup_one_row"), cell.value("pass_time_share")
    if not predicted or not measured or not one_row or not passes:
        return None
    rest = measured / (predicted * passes)
    rows, promised = predicted / one_row, figures.promise(cell)
    return Factors(cell, promised, predicted, rows, passes, rest, measured)


def sentences(cells: Sequence[Cell]) -> list[str]:
    """For each model what was predicted and measured over its valid cells (all, when
    none is), and the factors between them."""
    found = []
    for load in dict.fromkeys(cell.condition for cell in cells):
        own = [cell for cell in cells if cell.condition == load and factors(cell)]
        used = [cell for cell in own if cell.holds("speedup_native")] or own
        if used:
            found.append(_sentence(load, used))
    return found


def _sentence(load: str, cells: Sequence[Cell]) -> str:
    parts = [part for cell in cells if (part := factors(cell))]
    predicted = geometric_mean(p.predicted for p in parts)
    measured = geometric_mean(p.measured for p in parts)
    rows, passes = geometric_mean(p.rows for p in parts), geometric_mean(p.passes for p in parts)
    native = geometric_mean(p.native for p in parts)
    why = (
        f"the passes, at those costs, come to {percent(passes)}% of the decode time"
        if passes <= 1
        else "decoding took less time than its passes cost when they were measured alone"
    )
    text = (
        f"Under {load} the passes that ran, at the costs measured beforehand, come to "
        f"{ratio(predicted)}×; {ratio(measured)}× was measured ({_over(cells)}). The difference is "
        f"×{ratio(passes)} because {why}, and ×{ratio(native)} because {NATIVE} took "
        f"{ratio(native)} times what its own passes should cost. Deeper layers take several "
        f"tokens at once, which costs more; that is in the prediction, with ×{ratio(rows)}."
    )
    promised = [(p.promised, p.predicted) for p in parts if p.promised]
    if promised:
        before = geometric_mean(first for first, _ in promised)
        kept = geometric_mean(own / first for first, own in promised)
        text += (
            f" On the calibration text the same costs promised {ratio(before)}×; that these "
            f"requests exit otherwise makes ×{ratio(kept)}."
        )
    return text


def _over(cells: Sequence[Cell]) -> str:
    doubt = "" if cells[0].holds("speedup_native") else ", none valid"
    return f"geometric means over {counted(len(cells), 'cell')}{doubt}"


def _row(own: Factors) -> BodyRow:
    return judged_scope(own.cell, "speedup_native")._replace(group=own.cell.workload)


def _times(value: float) -> str:
    return f"×{ratio(value)}"


_FACTORS = Group("Factors", help=f"measured = predicted × passes × {NATIVE}")
COLUMNS: tuple[Column[Factors], ...] = (
    *places(lambda own: own.cell),
    Column(
        "Promised", lambda own: own.promised, ratio, "×", "on the calibration text",
        why="it was not told what a calibration text promised",
    ),
    Column(
        "Predicted", lambda own: own.predicted, ratio, "×", "from the passes counted in this cell"
    ),
    Column(
        "Measured", lambda own: own.measured, ratio, "×", f"over {NATIVE}, 95% interval",
        small=lambda own: bounds(own.cell, "speedup_native"),
    ),
    Column(
        "rows", lambda own: own.rows, _times, group=_FACTORS,
        help="in the prediction: deeper layers take several tokens",
    ),
    Column(
        "passes", lambda own: own.passes, _times, group=_FACTORS,
        help="the passes that ran, at their costs beforehand, over the measured decode time",
    ),
    Column(
        NATIVE, lambda own: own.native, _times, group=_FACTORS,
        help="its decode time over its cost beforehand",
    ),
)  # fmt: skip
