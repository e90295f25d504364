"""What passes through single segments cost, by their rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from backends.engine.costs.row_costs import SEQUENCES, RowCosts, lower_quartiles
from backends.engine.costs.timing import POSITIONS
from backends.engine.executors.base import Executor, StepRows
from backends.engine.passes import depths
from backends.engine.segments.fills import SegmentCosts

ROWS = (1, 2, 4, 8, 16, 32, 64)


def segment_costs(executor: Executor) -> SegmentCosts:
    """Time each segment with no head and with its head on all rows, and all of them in one call, at
    several numbers of rows. Segments follow one another as in a step, so that each finds its
    weights where a step finds them. The first slots of the executor are overwritten.
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

    def run(sequences: int, rows: int, index: int, head: bool = True) -> None:
        slots = np.repeat(np.arange(sequences), rows)
        positions = np.tile(np.arange(length, length + rows), sequences)
        table = StepRows(slots, positions, [0] * len(slots))
        asked = np.arange(len(slots), dtype=np.int32)
        if index == everything:
            executor.whole(table, asked)
        else:
            executor.advance(index, table, asked if head else asked[:0])

    calls: dict[tuple[int, int, bool], Callable[[], None]] = {
        (rows, index, head): functools.partial(run, 1, rows, index, head)
        for head in (False, True)
        for rows in counts
        for index in range(everything + head)
    }
    calls[0, everything, True] = functools.partial(run, several, 1, everything)
    found = lower_quartiles(calls, settle_s=0.0)

    def times(index: int, head: bool) -> list[float]:
        # other work makes a pass longer and never shorter: what few take beyond many is its doing
        descending = [found[rows, index, head] for rows in reversed(counts)]
        return np.minimum.accumulate(descending)[::-1].tolist()  # type: ignore[no-any-return]

    def costs(us: Sequence[float], cache_us: float = 0.0) -> RowCosts:
        return RowCosts(counts, tuple(us), length, cache_us)

    whole = times(everything, True)
    alone = costs(whole).of(several, length)
    beside_us = max(0.0, found[0, everything, True] - alone) / max(several - 1, 1)
    last = everything - 1
    segments = [
        costs(times(index, index == last), beside_us * count / sum(layers))
        for index, count in enumerate(layers)
    ]
    heads = [
        costs([max(0.0, a - b) for a, b in zip(times(i, True), times(i, False), strict=True)])
        for i in range(last)
    ]
    return SegmentCosts(tuple(segments), tuple(heads), costs(whole, beside_us))
