"""What a recorded chain of drafts says of each position, and how a replay asks for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.core.errors import UserError
from results.traces.drafted import DraftedRow
from results.traces.file import read_trace, write_trace
from results.traces.recorded import TraceRow
from tests.support.results.made_traces import made_row, made_trace

PASSES = [(3, 3, 3), (4, 1, 5), (0, 0, 1), (2, 2, 3)]
"""Drafted, accepted and asked for: full and right (0 to 2, and nobody knows 3); right, wrong and
two more that the drafter ended (4, 5); none (6); two that stand, and the end (7, 8 and 9)."""


def chains(**changes: Any) -> TraceRow:
    drafted, accepted, asked = (np.array(x, np.int32) for x in zip(*PASSES, strict=True))
    none = np.zeros(0, np.int32)
    about: dict[str, Any] = {
        "answer_tokens": 11,
        "positions": none,
        "confidence": np.zeros((0, 0), np.float32),
        "agrees": np.zeros((0, 0), np.int8),
        "drafted": drafted,
        "accepted": accepted,
        "asked": asked,
        "batch": np.ones(len(drafted), np.int32),
    }
    return made_row(**(about | changes))


@pytest.mark.parametrize(
    ("position", "room", "chain", "standing"),
    [
        (0, 3, (3, 3), 3),
        (0, 2, (2, 2), 2),
        (4, 6, (5, 4), 1),  # as it was recorded: a third draft behind the wrong one is not made
        (4, 4, (4, 4), 1),
        (4, 3, (3, 3), 1),
        (5, 9, (4, 3), 0),  # a chain that begins with the wrong one
        (6, 5, (1, 0), 0),
        (7, 5, (3, 2), 2),
        (1, 2, (2, 2), 2),  # a chain that begins in the middle of another
        (9, 5, (1, 0), 0),
        (17, 5, (3, 2), 2),  # the row begins anew after ten positions
    ],
)
def test_chains(position: int, room: int, chain: tuple[int, int], standing: int) -> None:
    row = DraftedRow(chains())
    assert row.chain(position, room) == chain
    assert row.standing(position, chain[1]) == standing


@pytest.mark.parametrize(
    ("last", "chain"),
    [((4, 2, 5), (5, 4)), ((4, 2, 4), (5, 5)), ((2, 2, 3), (3, 2)), ((2, 2, 2), (5, 5))],
)
def test_drafts_beyond_the_end_are_as_many_again(
    last: tuple[int, int, int], chain: tuple[int, int]
) -> None:
    """The draft at position 8 ends the answer: its ten tokens are the prompt's own and nine more.
    A chain that begins behind it begins anew."""
    drafted, accepted, asked = (np.array(x, np.int32) for x in zip(*PASSES[:3], last, strict=True))
    row = DraftedRow(chains(answer_tokens=10, drafted=drafted, accepted=accepted, asked=asked))
    assert row.chain(7, 5) == chain
    assert row.chain(7, 2) == (2, 2)
    assert row.chain(9, 3) == row.chain(0, 3) == (3, 3)


def test_drafts_behind_a_wrong_one_that_ended_for_want_of_room_go_on() -> None:
    asked = np.array([3, 4, 1, 3], np.int32)
    assert DraftedRow(chains(asked=asked)).chain(4, 9) == (9, 9)


def test_what_nobody_drafted_is_drawn_from_the_answers_own() -> None:
    """Position 3 is one of none, right and wrong, always the same; over many answers each."""
    seen = set()
    for number in range(60):
        row, again = (DraftedRow(chains(request_id=f"r{number}")) for _ in range(2))
        assert row.chain(3, 1) == again.chain(3, 1)
        assert row.standing(3, 1) == again.standing(3, 1)
        seen.add((row.chain(3, 1), row.standing(3, 1)))
    assert seen == {((1, 0), 0), ((1, 1), 0), ((1, 1), 1)}


def test_an_answer_that_was_never_drafted_for_has_no_drafts() -> None:
    none = np.zeros(10, np.int32)
    row = DraftedRow(chains(drafted=none, accepted=none, asked=none))
    assert row.chain(3, 4) == (1, 0)


def test_a_file_keeps_chains_and_older_ones_have_none(tmp_path: Path) -> None:
    path = tmp_path / "t"
    write_trace(path, made_trace(exits=(), thresholds=(), rows=(chains(),)))
    np.testing.assert_array_equal(read_trace(path).rows[0].asked, [3, 5, 1, 3])
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["asked"]), path)
    assert len(read_trace(path).rows[0].asked) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"asked": [3, 5, 1]}, "3 chains in 4 passes"),
        ({"asked": [3, 6, 1, 3]}, "a chain that no drafter makes"),
        ({"asked": [2, 5, 1, 3]}, "a chain that no drafter makes"),
        ({"accepted": [3, 5, 0, 2]}, "a chain that no drafter makes"),
        ({"accepted": [2, 0, 0, 1]}, "passes that do not come to its 11 tokens"),
        ({"accepted": [3, -1, 0, 2]}, "a chain that no drafter makes"),
    ],
)
def test_chains_that_no_recording_writes_are_refused(
    changes: dict[str, list[int]], words: str, tmp_path: Path
) -> None:
    numbers = {key: np.array(value, np.int32) for key, value in changes.items()}
    write_trace(tmp_path / "t", made_trace(exits=(), thresholds=(), rows=(chains(**numbers),)))
    with pytest.raises(UserError, match=f"damaged trace: request gsm8k-1 has .*{words}"):
        read_trace(tmp_path / "t")


def test_a_request_whose_passes_tell_less_than_the_others_is_refused(tmp_path: Path) -> None:
    none = np.zeros(0, np.int32)
    less = chains(request_id="gsm8k-2", asked=none)
    once = chains(request_id="gsm8k-3", **dict.fromkeys(("drafted", "accepted", "asked"), none))
    once = replace(once, batch=none, answer_tokens=1)
    for others, told in (((once,), False), ((once, less), True)):
        trace = made_trace(exits=(), thresholds=(), rows=(chains(), *others))
        write_trace(tmp_path / "t", trace)
        if not told:
            assert len(read_trace(tmp_path / "t").rows) == 2, "no pass, nothing to tell"
            continue
        with pytest.raises(UserError, match="request gsm8k-2 has 4 passes without 'asked', which"):
            read_trace(tmp_path / "t")
