"""What passes through single segments cost, by their rows."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from backends.engine.costs.row_costs import SEQUENCES, RowCosts, lower_quartiles
from backends.engine.costs.timing import POSITIONS
from backends.engine.executors.base import Executor, StepRows
from backends.engine.passes import depths
from backends.engine.segments.fills import SegmentCosts

ROWS = (1, 2, 4, 8, 16, 32, 64)


def segment_costs(executor: Executor) -> SegmentCosts:
    """Time each segment with its head on all rows, and all of them in one call, at several numbers
    of rows. Segments follow one another as in a step, so that each finds its weights where a step
    finds them. The first slots of the executor are overwritten.
    """
    most = min(ROWS[-1], executor.max_len - 1)
    length = min(POSITIONS, executor.max_len - most)
    several = min(SEQUENCES, executor.slots)
    for slot in range(several):
        executor.prefill(slot, [0] * length)
    counts = tuple(rows for rows in ROWS if rows <= most)
    layers = depths(executor)
    everything = len(layers)
    """Number of the call that runs all segments."""

    def run(sequences: int, rows: int, index: int) -> None:
        slots = np.repeat(np.arange(sequences), rows)
        positions = np.tile(np.arange(length, length + rows), sequences)
        table = StepRows(slots, positions, [0] * len(slots))
        asked = np.arange(len(slots), dtype=np.int32)
        if index == everything:
            executor.whole(table, asked)
        else:
            executor.advance(index, table, asked)

    calls: dict[tuple[int, int], Callable[[], None]] = {
        (rows, index): functools.partial(run, 1, rows, index)
        for rows in counts
        for index in range(everything + 1)
    }
    calls[0, everything] = functools.partial(run, several, 1, everything)
    found = lower_quartiles(calls)

    def costs(index: int, cache_us: float) -> RowCosts:
        # other work makes a pass longer and never shorter: what few take beyond many is its doing
        descending = np.minimum.accumulate([found[rows, index] for rows in reversed(counts)])
        return RowCosts(counts, tuple(descending[::-1].tolist()), length, cache_us)

    alone = costs(everything, 0.0).of(several, length)
    beside_us = max(0.0, found[0, everything] - alone) / max(several - 1, 1)
    shares = [beside_us * count / sum(layers) for count in layers]
    return SegmentCosts(
        tuple(costs(index, share) for index, share in enumerate(shares)),
        costs(everything, beside_us),
    )
