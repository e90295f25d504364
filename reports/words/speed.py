"""The speed-up of a variant over several cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from reports.cells import Cell
from reports.numbers import interval
from results.compare.intervals.several import over_cells


class Speed(NamedTuple):
    """The geometric mean of cells' speed-ups, with its interval."""

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

    The interval of one cell is its own, that of several adds up what they share, repeats of one
    turn and requests of one workload, and lets the rest cancel (see
    `results.compare.intervals.several`).
    """
    used = [cell for cell in cells if cell.value(metric)]
    valid = [cell for cell in used if cell.holds(metric)]
    taken = valid or used
    if not taken:
        return None
    value = math.exp(sum(math.log(cell.value(metric) or 1.0) for cell in taken) / len(taken))
    ends = _ends(taken, metric)
    low, high = ends or (value, value)
    return Speed(value, low, high, bool(valid), ends is not None)


def _ends(cells: Sequence[Cell], metric: str) -> tuple[float, float] | None:
    """None where a cell has too few pairs."""
    if any(cell.low(metric) is None for cell in cells):
        return None
    if len(cells) == 1:
        return cells[0].low(metric) or 0.0, cells[0].high(metric) or math.inf
    found = over_cells([cell.effects[metric] for cell in cells])
    bounds = found.bounds() if found is not None else None
    return None if bounds is None else (math.exp(bounds[0]), math.exp(bounds[1]))
