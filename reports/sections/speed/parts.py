"""What each speed-up is made of: steps for a token, time for a step, length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.numbers import ratio
from reports.sections import Section
from reports.tables import LOAD, WORKLOAD, Column, bounds, build, judged_scope
from reports.words.definitions import meaning
from reports.words.findings import place
from results import registry
from results.compare.stats import FEWEST_LENGTHS

_NOTE = (
    "Each number is the reference's value over this backend's, paired request by request, with its "
    "95% interval: above 1 it makes the backend faster. Fewer steps for a token, times the time of "
    "a step, is the speed-up for a token; times the length it is the ratio of whole decode times. "
    "Backends that count their steps only. Lengths repeat exactly: where the answers to fewer than "
    f"{FEWEST_LENGTHS} prompts differ in one, that column has no interval."
)
_HEADINGS = {
    "speedup": "Speed-up",
    "speedup_steps": "Steps per token",
    "speedup_step_time": "Time per step",
    "speedup_length": "Length",
}
_FACTORS = ("speedup_steps", "speedup_step_time")
"""Of the speed-up for a token."""
_WHY = "the backend or the reference counts no steps"


def section(seen: Overview, _: Samples) -> Section | None:
    """A row per cell; None where no cell has parts."""
    cells = [
        cell
        for cell in seen.cells
        if cell.value("speedup_steps") is not None and not cell.variant.is_reference
    ]
    if not cells:
        return None
    table = build((WORKLOAD, LOAD, *_columns()), cells, judged_scope)
    title = "What the speed-ups are made of"
    return Section(
        "parts",
        title,
        _NOTE,
        table=table,
        short="Parts of the speed-up",
        finding=_finding(cells),
    )


def _finding(cells: Sequence[Cell]) -> str:
    """The cell whose parts are furthest from 1, of real ones where there are any."""
    found = [cell for cell in cells if all(map(cell.holds, _FACTORS))]
    found = [cell for cell in found if not cell.variant.is_replay] or found
    if not found:
        return "No cell has valid parts."
    most = max(found, key=lambda cell: sum(abs(math.log(part)) for part in _factors(cell)))
    steps, step_time = _factors(most)
    return (
        f"Furthest from 1, {place(most)}: fewer steps for a token make ×{ratio(steps)}, the time "
        f"of a step ×{ratio(step_time)}, together ×{ratio(steps * step_time)}."
    )


def _factors(cell: Cell) -> list[float]:
    return [cell.value(name) or 1.0 for name in _FACTORS]


def _columns() -> Iterator[Column[Cell]]:
    for name, title in _HEADINGS.items():
        yield Column(
            title,
            partial(_value, name=name),
            ratio,
            "×",
            meaning(registry.find(name)),
            why=_WHY,
            small=_bounds(name),
            marks=partial(_mark, name=name),
        )


def _value(cell: Cell, name: str) -> float | None:
    return cell.value(name)


def _bounds(name: str) -> Callable[[Cell], str]:
    return lambda cell: bounds(cell, name)


def _mark(cell: Cell, name: str) -> str:
    return "struck" * (cell.stands_alone and not cell.holds(name))
