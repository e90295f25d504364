"""Which ratios rest on steps far from what the machine allows, and so change as models grow."""

from __future__ import annotations

from collections.abc import Iterable

from reports.cells import Cell

BOUND = "overhead-bound"
CHANGES = f"{BOUND}: changes with size"
HALF = 0.5


def overhead_share(cell: Cell) -> float | None:
    """The share of a step, the making of drafts apart, that need not grow as the model does: what
    lies above its floor or, where the floor is not known, what the engine spends beside its passes.
    None where neither is."""
    floor, drafts = cell.value("floor_share"), cell.metrics.get("draft_share") or 0.0
    if floor is None or drafts >= 1:
        return cell.value("overhead_share")
    return max(1 - floor / (1 - drafts), 0.0)


def is_overhead_bound(cell: Cell) -> bool:
    """Whether over half of a step is such overhead."""
    share = overhead_share(cell)
    return share is not None and share > HALF


def shrinking(cells: Iterable[Cell]) -> set[Cell]:
    """The cells whose speed-up over the reference has a side that is overhead-bound."""
    cells = list(cells)
    references = {c.place: c for c in cells if c.variant.is_reference}
    found = set()
    for cell in cells:
        other = references.get(cell.place)
        if other is not None and cell is not other and cell.value("speedup") is not None:
            found |= {cell} if is_overhead_bound(cell) or is_overhead_bound(other) else set()
    return found
