"""What a cell made by hand contributes to pooled speed-ups."""

from __future__ import annotations

import math

from results.compare.intervals.several import CellEffects
from results.compare.intervals.student import t_quantile

UNITS = 500


def made_effects(value: float, low: float, high: float, prompts: str) -> CellEffects:
    """Of a speed-up with about this interval, from one repeat of many requests."""
    error = math.log(high / low) / 2 / t_quantile(0.025, UNITS - 1)
    each = error * math.sqrt((UNITS - 1) / UNITS / UNITS)
    return CellEffects(
        mean=math.log(value),
        shares={0: 1.0},
        repeats={0: 0.0},
        requests=[each, -each] * (UNITS // 2),
        units=UNITS,
        rest=0.0,
        prompts=prompts,
    )
