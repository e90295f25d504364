"""A replayed trace as `backends.engine.costs` tries exits out on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from backends.engine.costs.cost_model import Trace
from results.traces.played import PlayedRow
from results.traces.recorded import TraceRow


def choice_trace(rows: Sequence[TraceRow], layers: Sequence[int], chosen: Sequence[int]) -> Trace:
    """The last attempt at each position, the one in the text that stood: with exits after `layers`,
    which are those of the trace by their numbers in `chosen`."""
    long = [row for row in rows if row.answer_tokens > 1]
    confidence = [c for row in long for c, _ in _positions(row, chosen)]
    agrees = [a for row in long for _, a in _positions(row, chosen)]
    shape = (len(confidence), len(layers))
    return Trace(
        tuple(layers),
        np.array(confidence, np.float32).reshape(shape),
        np.array(agrees, np.uint8).reshape(shape),
        np.cumsum([0, *(row.answer_tokens - 1 for row in long)]),
    )


def _positions(row: TraceRow, chosen: Sequence[int]) -> Iterator[tuple[list[float], list[bool]]]:
    """Of each token after the prompt's own, how sure each exit is and whether it is right."""
    one, last = PlayedRow(row, chosen), len(row.positions)
    exits = range(len(chosen))
    for position in range(row.answer_tokens - 1):
        yield (
            [one.confidence(position, last, exit_) for exit_ in exits],
            [one.agrees(position, last, exit_) for exit_ in exits],
        )
