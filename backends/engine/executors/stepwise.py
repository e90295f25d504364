"""Calls of an executor that are made of its others, where none of its own would be quicker."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backends.engine.draws import Draws
from backends.engine.executors.base import Executor, Int32, StepRows


class StepwiseCalls:
    """To inherit from beside whatever has the other methods of `Executor`."""

    def prefill(self: Executor, slot: int, token_ids: Sequence[int]) -> None:
        """See `Executor.prefill`."""
        self.read(StepRows.span(slot, 0, token_ids))

    def whole(self: Executor, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        """See `Executor.whole`."""
        last = len(self.exits)
        for index in range(last):
            self.advance(index, rows, wanted[:0])
        return self.advance(last, rows, wanted)

    def continued(
        self: Executor,
        rows: StepRows,
        wanted: Int32,
        most: Int32,
        threshold: float,
        stops: Int32,
        draws: Draws | None = None,
    ) -> list[list[int]]:
        """See `Executor.continued`."""
        return continue_by_steps(self, rows, wanted, most, threshold, stops, draws)


def continue_by_steps(
    executor: Executor,
    rows: StepRows,
    wanted: Int32,
    most: Int32,
    threshold: float,
    stops: Int32,
    draws: Draws | None = None,
    ahead: int = 1,
) -> list[list[int]]:
    """`Executor.continued` by calls of `advance`.

    Args:
        rows: computed first.
        wanted: ascending numbers of the rows that are continued.
        most: tokens of each continuation, at least 1.
        threshold: a token less probable than this ends its continuation and is no part of it.
        stops: tokens that do so too, as does -1, for logits that are NaN.
        draws: how each continuation is sampled; greedily without.
        ahead: positions from a row to the token that the model predicts there.

    Returns:
        The continuations. All their tokens but the `most`-th are in the cache.
    """
    found: list[list[int]] = [[] for _ in wanted]
    going: Sequence[int] = range(len(found))
    ends, limits = {-1, *stops.tolist()}, most.tolist()
    while going:
        noise = None if draws is None else draws.of(going)
        tokens, sure = _chosen(executor, rows, wanted, noise, ahead)
        slots, positions = rows.slots[wanted], rows.positions[wanted]
        kept, left = [], []
        for place, (number, token, confidence) in enumerate(zip(going, tokens, sure, strict=True)):
            if confidence >= threshold and token not in ends:
                found[number].append(token)
                if len(found[number]) < limits[number]:
                    kept.append(place)
                    left.append(number)
        next_tokens = [found[number][-1] for number in left]
        rows = StepRows(slots[kept], positions[kept] + 1, next_tokens)
        wanted, going = np.arange(len(left), dtype=np.int32), left
    return found


def _chosen(
    executor: Executor, rows: StepRows, wanted: Int32, draws: Draws | None, ahead: int
) -> tuple[list[int], list[float]]:
    """What follows the rows whose numbers are `wanted`, and its probability."""
    if draws is None:
        return executor.advance(0, rows, wanted)
    executor.segment(0, rows)
    last = StepRows(rows.slots[wanted], rows.positions[wanted], rows.tokens[wanted])
    return draws.choose(executor.logits(last), last.positions + np.int32(ahead))
