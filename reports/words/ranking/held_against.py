"""One backend held against another on the same workloads and loads, request by request."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reports.cells import Cell
from reports.collect import Samples
from results.compare.intervals.several import over_cells
from results.compare.rivals import rival_effects


def held_against(
    ours: Sequence[Cell], others: Sequence[Cell], samples: Samples, metric: str = "tpot_s"
) -> tuple[float, float, float] | None:
    """By how much a time of `LATENCIES` is shorter, over our workloads and loads: the ratio with
    its 95% interval; None where one of them has no pair."""
    theirs, times = {cell.place: cell for cell in others}, samples.times[metric]
    found = [
        rival_effects(times[cell], times[theirs[cell.place]], cell.workload)
        for cell in ours
        if cell.place in theirs
    ]
    known = [one for one in found if one is not None]
    pooled = over_cells(known) if known and len(known) == len(ours) else None
    bounds = pooled.bounds() if pooled is not None else None
    if pooled is None or bounds is None:
        return None
    value, low, high = (math.exp(x) for x in (pooled.mean, *bounds))
    return value, low, high
