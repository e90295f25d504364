"""Variants against workloads: speed-up over plain decoding and same answers in one table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from reports.cells import Cell
from reports.numbers import interval, percent, ratio
from reports.tables import BodyCell, BodyRow, HeaderCell, Table
from reports.text import clipped, visible
from reports.variants import plain
from results.compare.pairing import NATIVE

SPEED, SAME = "speedup_native", "consistency_native"
_EFFECTIVE = {"exit_layers": "Exits", "gamma": "γ", "heads": "Heads"}
"""Options as they took effect that stand beside each variant."""


def table(cells: Sequence[Cell]) -> Table:
    """A row per variant and load, two columns per workload, and their means where there are
    several workloads. `cells` are measured ones with a speed-up over plain decoding."""
    workloads = list(dict.fromkeys(cell.workload for cell in cells))
    loads = list(dict.fromkeys(cell.load for cell in cells))
    grouped: dict[tuple[str, int], dict[str, Cell]] = {}
    for cell in sorted(cells, key=lambda c: (c.order, c.variant.index)):
        grouped.setdefault((cell.load, cell.variant.index), {})[cell.workload] = cell
    best = {
        (load, workload): _best([c for c in cells if (c.load, c.workload) == (load, workload)])
        for load in loads
        for workload in workloads
    }
    rows = []
    before = loads[0]
    for (load, _), by_workload in grouped.items():
        css = "" if load == before else "first-of-group"
        before = load
        rows.append(_row(by_workload, workloads, best, css, with_load=len(loads) > 1))
    return Table(*_header(workloads, with_load=len(loads) > 1), tuple(rows))


def _header(
    workloads: Sequence[str], *, with_load: bool
) -> tuple[tuple[HeaderCell, ...], tuple[HeaderCell, ...]]:
    first = ["Backend", *["Load"] * with_load, *_EFFECTIVE.values()]
    groups = [HeaderCell(title, rows=2, column=place) for place, title in enumerate(first)]
    subheads: list[HeaderCell] = []
    named = [*workloads, "mean"] if len(workloads) > 1 else workloads
    for workload in named:
        place = len(first) + len(subheads)
        groups.append(HeaderCell(workload, css="group begin", span=2))
        help_text = f"decode speed against {NATIVE}, 95% interval"
        subheads.append(HeaderCell("×", css="num begin", column=place, help=help_text))
        help_text = f"requests with {NATIVE}'s token ids"
        subheads.append(HeaderCell("same %", css="num", column=place + 1, help=help_text))
    return tuple(groups), tuple(subheads)


def _row(
    own: dict[str, Cell],
    workloads: Sequence[str],
    best: dict[tuple[str, str], Cell | None],
    css: str,
    *,
    with_load: bool,
) -> BodyRow:
    first = next(iter(own.values()))
    items = [BodyCell(first.load, str(first.order), css="")] if with_load else []
    items += [_effective(list(own.values()), name) for name in _EFFECTIVE]
    for workload in workloads:
        cell = own.get(workload)
        if cell is None:
            undefined = "not measured"
            items += [BodyCell(css="num begin", undefined=undefined), BodyCell(undefined=undefined)]
            continue
        is_best = best[first.load, workload] is cell
        items += [_speed(cell, is_best), _share(cell)]
    if len(workloads) > 1:
        items += _means(list(own.values()))
    validity = "valid" if all(cell.valid for cell in own.values()) else "not valid"
    return BodyRow(first.variant, None, first.load, validity, css, tuple(items))


def _effective(cells: Sequence[Cell], name: str) -> BodyCell:
    """The option as it took effect; it may have been chosen workload by workload."""
    values = list(dict.fromkeys(_words(cell.effective.get(name)) for cell in cells))
    text = visible(clipped(" or ".join(filter(None, values)), 40))
    return (
        BodyCell(text, text, css="")
        if text
        else BodyCell(css="", undefined="the backend did not say")
    )


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        distinct = list(dict.fromkeys(plain(item) for item in value))
        # one threshold for all layers is told once
        whole = len(distinct) == 1 and all(isinstance(item, float) for item in value)
        return distinct[0] if whole else " ".join(plain(item) for item in value)
    return "" if value is None else plain(value)


def _speed(cell: Cell, is_best: bool) -> BodyCell:
    value = cell.value(SPEED) or 0.0
    low, high = cell.low(SPEED), cell.high(SPEED)
    small = interval(low, high) if low is not None and high is not None else ""
    css = "num begin" + " best" * is_best + " struck" * (not cell.holds(SPEED))
    return BodyCell(ratio(value), repr(value), css, small)


def _share(cell: Cell) -> BodyCell:
    value = cell.value(SAME)
    if value is None:
        return BodyCell(undefined=f"no request in common with {NATIVE}")
    return BodyCell(percent(value), repr(value), "num" + " struck" * (not cell.holds(SAME)))


def _means(cells: Sequence[Cell]) -> list[BodyCell]:
    """Geometric mean of the speed-ups and mean share of the same answers, over the valid cells."""
    valid = [cell for cell in cells if cell.holds(SPEED)]
    speeds = [value for cell in valid if (value := cell.value(SPEED))]
    alike = [cell for cell in cells if cell.holds(SAME)]
    same = [value for cell in alike if (value := cell.value(SAME)) is not None]
    why = "no valid cell"
    over = "" if len(valid) == len(cells) else f"of {len(valid)} valid"
    return [
        _mean(speeds, lambda x: math.exp(sum(map(math.log, x)) / len(x)), ratio, over, why),
        _mean(same, lambda x: sum(x) / len(x), percent, "", why, css="num"),
    ]


def _mean(
    values: Sequence[float], average: Callable[[Sequence[float]], float],
    form: Callable[[float], str], small: str, why: str, css: str = "num begin",
) -> BodyCell:  # fmt: skip
    if not values:
        return BodyCell(css=css, undefined=why)
    value = average(values)
    return BodyCell(form(value), repr(value), css, small)


def _best(cells: Sequence[Cell]) -> Cell | None:
    """The fastest valid cell whose backend promises plain decoding's text."""
    promising = [cell for cell in cells if cell.holds(SPEED) and not cell.variant.lossy]
    return max(promising, key=lambda cell: cell.value(SPEED) or 0.0, default=None)
