"""Whether answers are the reference's."""

from __future__ import annotations

from collections.abc import Sequence

from reports.cells import Cell
from reports.numbers import percent

SAME_ANSWERS = "the same answers"


def consistency(cells: Sequence[Cell]) -> tuple[float, float | None] | None:
    """Mean share of same answers and mean noise floor, over the cells where the share is valid (all
    when it is in none). None when undefined."""
    cells = [cell for cell in cells if cell.holds("consistency_ratio")] or cells
    shares = [s for cell in cells if (s := cell.value("consistency_ratio")) is not None]
    floors = [f for cell in cells if (f := cell.value("noise_floor")) is not None]
    if not shares:
        return None
    return sum(shares) / len(shares), sum(floors) / len(floors) if floors else None


def answer_words(cells: Sequence[Cell]) -> str:
    """Whether the answers are the reference's, as a noun phrase; empty when unknown."""
    found = consistency(cells)
    if found is None:
        return ""
    share, floor = found
    if share == 1:
        return SAME_ANSWERS
    if floor is not None and share >= floor:
        return "answers that differ no more than the reference's own from repeat to repeat"
    return f"different answers to {percent(1 - share)}% of the requests"
