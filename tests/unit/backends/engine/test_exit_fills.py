"""What early exits owe the layers after them: filled late, together, once, from the right state."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from backends.engine.decoder import Decoder
from backends.engine.executors.base import RING
from tests.support.engine.exit_streams import (
    MOST,
    Kind,
    always,
    at_random,
    kinds,
    opened,
    run,
    streams,
)
from tests.support.engine.random_models import random_model


@kinds
@pytest.mark.parametrize("count", [14, 15, 16, 17, 18])
def test_a_boundary_is_paid_before_it_forgets(count: int, kind: Kind) -> None:
    """One sequence by itself, whose tokens leave so many times in a row, then go through: each fill
    finds the states that its positions left with."""
    model = random_model("llama")
    decoder = opened(kind, model, (2,), lambda name, number, *_: number % (count + 4) < count)
    executor: Any = decoder._executor
    fill, advance = executor.fill, executor.advance
    kept: dict[int, Any] = {}

    def states(rows: Any) -> list[tuple[int, Any]]:
        boundary = executor.boundary(1)
        return [(p, boundary[s, p % RING].clone()) for s, p, _ in rows.table.T.tolist()]

    def advanced(index: int, rows: Any, wanted: Any) -> Any:
        found = advance(index, rows, wanted)
        kept.update(states(rows) if index == 0 else ())
        return found

    def filled(index: int, rows: Any) -> None:
        assert all(torch.equal(kept.pop(position), state) for position, state in states(rows))
        fill(index, rows)

    executor.fill, executor.advance = filled, advanced
    run(decoder, streams(model)[1:2])
    assert len(kept) < MOST - 3


@kinds
def test_what_is_owed_is_filled_late_and_together(kind: Kind) -> None:
    """Whoever always leaves owes until the boundary is full, and all pay when one does."""
    model = random_model("llama")
    decoder = opened(kind, model, (1, 3), always, slots=7)
    calls = watched(decoder)
    run(decoder, streams(model))
    longest = max(stream.max_new_tokens for stream in streams(model))
    assert [index for index, _ in calls] == [1] * len(calls)
    assert 1 <= len(calls) <= 1 + longest // 15
    assert max(rows for _, rows in calls) > 16


@kinds
def test_nothing_is_filled_twice_or_left_out(kind: Kind) -> None:
    """Of each position every layer's keys and values are written once, by a pass or a fill."""
    model = random_model("llama")
    decoder = opened(kind, model, (1, 3), at_random)
    written: Counter[tuple[int, int]] = Counter()
    bounds = (0, 1, 3, model.architecture.layers)
    executor: Any = decoder._executor
    fill, advance = executor.fill, executor.advance

    def filled(index: int, rows: Any) -> None:
        for position in rows.positions.tolist():
            written.update((position, layer) for layer in range(bounds[index], bounds[-1]))
        fill(index, rows)

    def advanced(index: int, rows: Any, wanted: Any) -> Any:
        for position in rows.positions.tolist():
            written.update((position, layer) for layer in range(*bounds[index : index + 2]))
        return advance(index, rows, wanted)

    executor.fill, executor.advance = filled, advanced
    one = streams(model)[3]
    run(decoder, [one])
    assert set(written.values()) == {1}
    first, end = len(one.prompt), len(one.tokens) - 16
    wanted = {(position, layer) for position in range(first, end) for layer in range(bounds[-1])}
    assert wanted <= set(written)


def watched(decoder: Decoder) -> list[tuple[int, int]]:
    """Boundary and rows of each fill to come."""
    calls: list[tuple[int, int]] = []
    executor: Any = decoder._executor
    fill = executor.fill

    def noted(index: int, rows: Any) -> None:
        calls.append((index, len(rows)))
        fill(index, rows)

    executor.fill = noted
    return calls
