"""What a trace tells of trees of guesses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import UserError
from results.traces.file import read_trace, write_trace
from results.traces.offered import NONE, Offer, OfferedRow
from results.traces.recorded import TraceRow
from tests.support.results.made_traces import made_trace

PASSES = [(0, 0, 0), (7, 3, 2), (4, 1, 0), (5, 2, 2)]
"""Offered, on the way, and standing: no guess at all; two stand and one falls; one falls; two stand
and nothing was offered behind them. Nine tokens with the prompt's own."""


def row(**changed: list[int]) -> TraceRow:
    offered, drafted, accepted = (list(x) for x in zip(*PASSES, strict=True))
    found = {"offered": offered, "drafted": drafted, "accepted": accepted, **changed}
    arrays: dict[str, Any] = {name: np.array(x, np.int32) for name, x in found.items()}
    none = made_trace().rows[0]
    return replace(
        none,
        answer_tokens=9,
        positions=np.zeros(0, np.int32),
        confidence=none.confidence[:0],
        agrees=none.agrees[:0],
        batch=np.ones(len(PASSES), np.int32),
        **arrays,
    )


@pytest.mark.parametrize(
    ("position", "room", "offer"),
    [
        (0, 4, NONE),
        (1, 4, Offer(7, 3, 2)),
        (1, 1, Offer(7, 1, 1)),
        (1, 0, NONE),
        (2, 4, Offer(7, 2, 1)),  # begun in the middle: what stood from there on
        (3, 4, Offer(7, 1, 0)),
        (4, 4, Offer(4, 1, 0)),
        (5, 4, Offer(5, 2, 2)),
        (6, 4, Offer(5, 1, 1)),
        (7, 4, NONE),  # behind the last guess nobody knows
        (8, 4, NONE),
        (9, 4, Offer(7, 3, 2)),  # beyond its end it begins anew
    ],
)
def test_what_is_offered_and_stands(position: int, room: int, offer: Offer) -> None:
    assert OfferedRow(row()).at(position, room) == offer


def test_a_row_without_guesses_offers_none() -> None:
    none = np.zeros(0, np.int32)
    assert OfferedRow(replace(row(), offered=none, drafted=none, accepted=none)).at(3, 4) == NONE


def test_a_file_keeps_what_was_offered(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_trace(path, replace(made_trace(), rows=(row(),)))
    np.testing.assert_array_equal(read_trace(path).rows[0].offered, [0, 7, 4, 5])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"offered": [0, 7, 4]}, "3 chains in 4 passes"),
        ({"asked": [0, 3, 1, 2]}, "4 chains in 4 passes"),
        ({"offered": [0, 2, 4, 5]}, "a chain that no drafter makes"),
        ({"offered": [1, 7, 4, 5]}, "a chain that no drafter makes"),
        ({"drafted": [0, 4, 1, 2]}, "a chain that no drafter makes"),
        ({"accepted": [0, 2, -1, 2]}, "a chain that no drafter makes"),
        ({"accepted": [0, 1, 0, 2], "drafted": [0, 2, 1, 2]}, "do not come to its 9 tokens"),
    ],
)
def test_impossible_trees_are_refused(
    changed: dict[str, list[int]], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.parquet"
    write_trace(path, replace(made_trace(), rows=(row(**changed),)))
    with pytest.raises(UserError, match=words) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)
