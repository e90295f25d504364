"""The speed-up of a variant over several cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from reports.cells import Cell
from reports.numbers import interval


class Speed(NamedTuple):
    """Geometric means over cells: of the speed-up and of each end of its interval."""

    value: float
    low: float
    high: float
    valid: bool
    """False when no cell was valid, so that the number is over cells that are not."""
    bounded: bool
    """False when a cell has too few pairs for an interval: then the ends say nothing."""

    @property
    def is_faster(self) -> bool:
        """Whether the interval, as it is shown, lies above 1, and the cells are valid."""
        return self.valid and self.bounded and round(self.low, 2) > 1

    @property
    def is_slower(self) -> bool:
        """Likewise below 1."""
        return self.valid and self.bounded and round(self.high, 2) < 1

    @property
    def interval(self) -> str:
        """The interval as shown; empty without one."""
        return interval(self.low, self.high) if self.bounded else ""


def speed(cells: Sequence[Cell], metric: str = "speedup") -> Speed | None:
    """The speed-up over a variant's cells where it is valid (over all when it is in none), None
    when undefined. `metric`: over the reference, or "speedup_native".

    The interval is the geometric mean of the cells' lower and of their upper ends: as wide as if
    the cells' errors went together, so it never promises more than the cells do.
    """
    used = [cell for cell in cells if cell.value(metric)]
    valid = [cell for cell in used if cell.holds(metric)]
    triples = [_ends(cell, metric) for cell in valid or used]
    if not triples:
        return None
    value, low, high = (
        math.exp(sum(map(math.log, ends)) / len(ends)) for ends in zip(*triples, strict=True)
    )
    bounded = all(cell.low(metric) is not None for cell in valid or used)
    return Speed(value, low, high, bool(valid), bounded)


def _ends(cell: Cell, metric: str) -> tuple[float, float, float]:
    value = cell.value(metric) or 1.0
    return value, cell.low(metric) or value, cell.high(metric) or value
