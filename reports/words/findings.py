"""The one line of a folded section: its main number, and where it was found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from reports.cells import Cell
from reports.numbers import counted

NONE_HOLDS = "No cell holds."
"""Of a section all of whose numbers are void."""


def place(cell: Cell) -> str:
    """``vllm on gsm8k, closed c=8``."""
    return f"{cell.variant.label} on {cell.workload}, {cell.load}"


def sound(cells: Iterable[Cell], metric: str) -> list[Cell]:
    """The cells that have the metric and whose value may be believed."""
    return [cell for cell in cells if cell.value(metric) is not None and cell.holds(metric)]


def span(values: Iterable[float], form: Callable[[float], str]) -> str:
    """``1.20 to 3.41``, one number where both ends look the same; empty without a value."""
    found = list(values)
    if not found:
        return ""
    return " to ".join(dict.fromkeys((form(min(found)), form(max(found)))))


def extremes(
    what: str,
    cells: Sequence[Cell],
    metric: str,
    form: Callable[[float], str],
    unit: str = "",
    where: Callable[[Cell], str] = place,
    holds: Callable[[Cell, str], bool] = Cell.holds,
) -> str:
    """A sentence: ``what`` from the least value, and where that is, to the greatest, over the
    cells whose value may be believed; over all where none may, which is said. Empty without
    values. Of real runs, where there are any: replayed decisions say what they cost and no more.
    `holds`: whether a cell's value may be believed."""
    known = [cell for cell in cells if cell.value(metric) is not None]
    known = [cell for cell in known if not cell.variant.is_replay] or known
    used = [cell for cell in known if holds(cell, metric)] or known
    if not used:
        return ""
    doubt = "" if holds(used[0], metric) else "; none of them valid"
    least, most = (end(used, key=lambda cell: cell.value(metric) or 0.0) for end in (min, max))
    low, high = (f"{form(cell.value(metric) or 0.0)}{unit}" for cell in (least, most))
    if low == high:
        return f"{what} {high} in {counted(len(used), 'cell')}{doubt}."
    return f"{what} {low} ({where(least)}) to {high} ({where(most)}){doubt}."


def geometric_mean(values: Iterable[float]) -> float | None:
    """None without a value above 0."""
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None
