"""Predicted against measured speed-up, and what the difference is made of.

The factors are those of `results.metrics.exit_costs`: measured = predicted x share of the decode
time that the counted passes take x (autoregressive's decode time / its cost as measured
beforehand). The last is what is left, so that the three always come to the measured value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from reports.cells import Cell
from reports.figures.exits import promise
from reports.numbers import counted, interval, percent, ratio
from reports.tables import BodyCell, BodyRow, HeaderCell, Table
from results.compare.pairing import NATIVE


class Factors(NamedTuple):
    """One cell's speed-ups over autoregressive, and the factors between them."""

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
    """None unless the cell has costs, exits and a speed-up over autoregressive."""
    predicted, measured = cell.value("predicted_speedup"), cell.value("speedup_native")
    one_row, passes = cell.value("predicted_speedup_one_row"), cell.value("pass_time_share")
    if not predicted or not measured or not one_row or not passes:
        return None
    rest = measured / (predicted * passes)
    return Factors(promise(cell), predicted, predicted / one_row, passes, rest, measured)


def sentences(cells: Sequence[Cell]) -> list[str]:
    """For each load what was predicted and measured over its valid cells (all, when none is), and
    the factors between them."""
    found = []
    for load in dict.fromkeys(cell.load for cell in cells):
        own = [cell for cell in cells if cell.load == load and factors(cell)]
        used = [cell for cell in own if cell.holds("speedup_native")] or own
        if used:
            found.append(_sentence(load, used))
    return found


def _sentence(load: str, cells: Sequence[Cell]) -> str:
    parts = [part for cell in cells if (part := factors(cell))]
    predicted, measured = _mean(p.predicted for p in parts), _mean(p.measured for p in parts)
    rows, passes = _mean(p.rows for p in parts), _mean(p.passes for p in parts)
    native = _mean(p.native for p in parts)
    why = (
        f"the passes are {percent(passes)}% of the decode time and the rest lies between them"
        if passes <= 1
        else "decoding took less time than its passes cost when they were measured alone"
    )
    text = (
        f"Under {load} the passes that ran, at the costs measured beforehand, come to "
        f"{ratio(predicted)}×; {ratio(measured)}× was measured ({_over(cells)}). The difference is "
        f"×{ratio(passes)} because {why}, and ×{ratio(native)} because {NATIVE} took "
        f"{ratio(native)} times what its own passes should cost. Deeper segments run with more "
        f"than one row; that is in the prediction, with ×{ratio(rows)}."
    )
    if any((cell.load_value or 1) > 1 or cell.load_kind != "closed" for cell in cells):
        text += " Requests share passes under this load, which the prediction leaves out."
    promised = [(p.promised, p.predicted) for p in parts if p.promised]
    if promised:
        before = _mean(first for first, _ in promised)
        kept = _mean(own / first for first, own in promised)
        text += (
            f" On the calibration text the same costs promised {ratio(before)}×; that these "
            f"requests exit otherwise makes ×{ratio(kept)}."
        )
    return text


def _over(cells: Sequence[Cell]) -> str:
    doubt = "" if cells[0].holds("speedup_native") else ", none valid"
    return f"geometric means over {counted(len(cells), 'cell')}{doubt}"


def _mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def table(cells: Sequence[Cell]) -> Table:
    """A row per cell: promised, predicted, measured, and the factors from one to the next."""
    heads = (
        HeaderCell("Backend", rows=2, column=0),
        HeaderCell("Workload", rows=2, column=1),
        HeaderCell("Load", rows=2, column=2),
        HeaderCell("Promised", "×", "num", "on the calibration text", rows=2, column=3),
        HeaderCell(
            "Predicted", "×", "num", "from the passes counted in this cell", rows=2, column=4
        ),
        HeaderCell("Measured", "×", "num", f"over {NATIVE}, 95% interval", rows=2, column=5),
        HeaderCell(
            "Factors", css="group begin", span=3, help="measured = predicted × passes × native"
        ),
    )
    subheads = (
        HeaderCell(
            "rows", css="num begin", column=6, help="in the prediction: more rows in later passes"
        ),
        HeaderCell("passes", css="num", column=7, help="share of the decode time that passes take"),
        HeaderCell(NATIVE, css="num", column=8, help="its decode time over its cost beforehand"),
    )
    return Table(heads, subheads, tuple(_rows(cells)))


def _rows(cells: Sequence[Cell]) -> Iterator[BodyRow]:
    before = ""
    for cell in cells:
        found = factors(cell)
        if found is None:
            continue
        css = "first-of-group" if cell.workload != before else ""
        before = cell.workload
        low, high = cell.low("speedup_native"), cell.high("speedup_native")
        bounds = interval(low, high) if low is not None and high is not None else ""
        items = (
            BodyCell(cell.workload, cell.workload, css=""),
            BodyCell(cell.load, str(cell.order), css=""),
            _times(found.promised, "it was not told what a calibration text promised"),
            _times(found.predicted),
            BodyCell(ratio(found.measured), repr(found.measured), small=bounds),
            *(_factor(value) for value in (found.rows, found.passes, found.native)),
        )
        validity = "valid" if cell.valid else "not valid"
        css = css if cell.holds("speedup_native") else f"{css} invalid".strip()
        yield BodyRow(cell.variant, cell.workload, cell.load, validity, css, items)


def _times(value: float | None, undefined: str = "") -> BodyCell:
    if value is None:
        return BodyCell(undefined=undefined)
    return BodyCell(ratio(value), repr(value))


def _factor(value: float) -> BodyCell:
    return BodyCell(f"×{ratio(value)}", repr(value))
