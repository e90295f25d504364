"""Traces at the exits of another model, position by position."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from unittest import mock

import numpy as np
import pytest

from harness.core.errors import UserError
from results.traces.played import PlayedRow, check_known, columns, own_layers, unknown
from results.traces.rates import parse_rates
from tests.support.results.made_traces import made_row, made_trace


@pytest.mark.parametrize(
    ("depth", "layers"),
    [(8, (2, 6)), (16, (4, 12)), (32, (8, 24)), (12, (3, 9)), (2, (1,)), (1, ())],
)
def test_exits_go_to_their_share_of_the_depth(depth: int, layers: tuple[int, ...]) -> None:
    assert own_layers(made_trace(), depth) == layers


def test_each_layer_replays_the_nearest_exit() -> None:
    trace = made_trace()
    assert columns(trace, [5, 11], 16, "x") == (0, 1)
    assert columns(trace, [12], 16, "x") == (1,)
    with pytest.raises(UserError, match=r"^x: the exits after layers 10 and 12 of 16 would replay"):
        columns(trace, [10, 12], 16, "x")
    with pytest.raises(UserError, match=r"3 layers \[2, 5, 7\], and the trace has 2 \(it has"):
        columns(trace, [2, 5, 7], 8, "x")
    with pytest.raises(UserError, match=r"the trace has 0 \(lengths alone\)"):
        columns(made_trace(exits=(), thresholds=(), depth=None), [2], 8, "x")


def test_a_traces_own_exits_never_replay_one_another() -> None:
    """Also where another one lies nearer to a layer than the one that comes to it."""
    trace = made_trace(exits=(1, 4), thresholds=(0.5, 0.5), depth=16)
    assert own_layers(trace, 6) == (1, 2)
    assert columns(trace, (1, 2), 6, "x") == (0, 1)
    for recorded, depth in itertools.product(range(3, 13), range(2, 13)):
        for exits in itertools.combinations(range(1, recorded), 2):
            found = made_trace(exits=exits, thresholds=(0.5, 0.5), depth=recorded)
            layers = own_layers(found, depth)
            assert columns(found, layers, depth, "x") == ((0, 1) if len(layers) > 1 else mock.ANY)


@pytest.mark.parametrize(
    ("exits", "depth", "layer"),
    [({0.31: 0.3, 0.37: 0.3}, 12, 4), ({0.22: 0.5, 0.28: 0.3}, 8, 2)],
)
def test_exits_of_rates_that_come_to_one_layer_leave_there_together(
    exits: dict[float, float], depth: int, layer: int
) -> None:
    rates = parse_rates({"exits": exits}, "x")
    assert own_layers(rates, depth) == (layer,)
    chosen = columns(rates, (layer,), depth, "x")
    rows = [rates.row_for(f"r{n}", 101, ignore_eos=True) for n in range(50)]
    left = np.concatenate([row.confidence[:, chosen] for row in rows])
    assert left.mean() == pytest.approx(sum(exits.values()), abs=0.03)


def test_attempts_come_in_their_order_and_the_last_one_repeats() -> None:
    row = PlayedRow(made_row(), [0, 1])
    assert row.confidence(1, 0, 1) == pytest.approx(0.8)
    assert [row.confidence(1, n, 1) for n in (1, 2)] == pytest.approx([0.6, 0.6])
    assert not row.agrees(1, 0, 1)
    assert row.agrees(1, 1, 1)
    assert row.agrees(3, 5, 1)
    assert not row.agrees(3, 5, 0)
    assert not row.agrees(2, 0, 0), "nobody knows: not"


def test_what_was_not_asked_is_what_was_asked_before() -> None:
    row = PlayedRow(made_row(), [0, 1])
    assert row.confidence(0, 0, 1) == pytest.approx(0.9)
    assert row.agrees(0, 0, 1)
    gap = made_row(positions=np.array([0, 1, 1, 1, 3], np.int32))
    assert PlayedRow(gap, [0]).confidence(2, 0, 0) == pytest.approx(0.3), "position 1's last"
    late = made_row(positions=np.array([2, 2, 2, 2, 3], np.int32))
    assert PlayedRow(late, [0]).confidence(0, 0, 0) == pytest.approx(0.9), "the first there is"
    none = made_row(
        positions=np.zeros(0, np.int32),
        confidence=np.zeros((0, 2), np.float32),
        agrees=np.zeros((0, 2), np.int8),
    )
    assert PlayedRow(none, [0]).confidence(0, 0, 0) == 0
    assert not PlayedRow(none, [0]).agrees(0, 0, 0)


def test_decisions_begin_anew_after_the_end() -> None:
    row = PlayedRow(made_row(), [0, 1])
    for position in range(4):
        assert row.confidence(position + 8, 0, 1) == row.confidence(position, 0, 1)


def test_drafts_beyond_the_end_count_where_the_answer_ends() -> None:
    """After a wrong draft: nobody knows of them, and a longer answer has other tokens there."""
    beyond = made_row(positions=np.array([0, 1, 2, 5, 3], np.int32))
    beyond.agrees[3] = -1
    ending, longer = (PlayedRow(beyond, [0, 1], ends=ends) for ends in (True, False))
    assert ending.confidence(5, 0, 1) == pytest.approx(0.6)
    assert not ending.agrees(5, 0, 1)
    assert longer.confidence(5, 0, 1) == longer.confidence(1, 0, 1) == pytest.approx(0.8)
    assert ending.confidence(1, 3, 1) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("chosen", "thresholds", "place"),
    [
        ([0, 1], [0.6, 0.75], None),
        ([0, 1], [0.1, 0.1], None),
        ([0, 1], [0.6, 0.99], None),
        ([0, 1], [0.8, 0.75], (2, 1)),
        ([1], [0.75], (2, 0)),
        ([1], [0.65], None),
        ([0], [0.99], None),
    ],
)
def test_a_number_that_is_needed_and_not_there_is_found(
    chosen: Sequence[int], thresholds: Sequence[float], place: tuple[int, int] | None
) -> None:
    assert unknown(made_row(), chosen, thresholds) == place


def test_a_replay_that_needs_it_is_refused_in_a_line() -> None:
    with pytest.raises(UserError) as caught:
        check_known(made_trace(), [0, 1], [0.8, 0.75], "x")
    assert str(caught.value) == (
        "x: request gsm8k-1, token 2: no confidence (NaN) for the exit at 0.75 of the depth, which "
        "threshold 0.75 asks for: the recorded run had left before; record it with a threshold "
        "that nothing passes"
    )
    check_known(parse_rates({"exits": {0.5: 0.5}}, "x"), [0], [0.99], "x")
