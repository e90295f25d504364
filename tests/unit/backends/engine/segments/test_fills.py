"""Fills are tried out on what passes cost: known costs, known answers."""

from __future__ import annotations

import itertools

import pytest

from backends.engine.costs.cost_model import Replay
from backends.engine.costs.row_costs import RowCosts
from backends.engine.segments.fills import (
    NUMBERS,
    ExitRates,
    SegmentCosts,
    assumed,
    played,
    rates_of,
    ready_plan,
)

ROWS = (1, 64)


def costs(
    fixed: float, per_row: float, segments: int = 2, whole: float | None = None
) -> SegmentCosts:
    """Each segment costs `fixed`, and `per_row` for each row; all of them in one call `whole`."""

    def line(factor: float) -> RowCosts:
        us = tuple(factor * (fixed + per_row * rows) for rows in ROWS)
        return RowCosts(ROWS, us, 100, 0.0)

    free = RowCosts(ROWS, (0.0, 0.0), 100, 0.0)
    every = line(segments if whole is None else whole)
    return SegmentCosts((line(1.0),) * segments, (free,) * (segments - 1), every)


def test_one_stream_costs_its_passes() -> None:
    """Always two drafts, all of which stand: three tokens for three passes of the first segment
    and one of the last over three rows."""
    found = played(costs(10, 1), ExitRates((1.0,), 1.0), 2, 1, (1, 1))
    assert found == pytest.approx((3 * 11 + 13) / 3, rel=1e-3)


def test_what_never_leaves_is_plain_decoding() -> None:
    found = played(costs(10, 1), ExitRates((0.0,), 1.0), 5, 4, (1, 4))
    assert found == pytest.approx(2 * (10 + 4) / 4, rel=1e-3)


def test_drafts_that_fall_cost_and_bring_nothing() -> None:
    found = played(costs(10, 1), ExitRates((1.0,), 0.0), 2, 1, (1, 1))
    assert found == pytest.approx(3 * 11 + 13, rel=1e-3)


def test_waiting_pays_where_a_pass_is_dear_and_its_rows_are_not() -> None:
    rates = ExitRates((0.7,), 0.98)
    dear = ready_plan(costs(100, 0.1), rates, 5, 16)
    for number, fills in dear.policy.fills.items():
        assert fills[0] == 1
        assert number < 4 or fills[-1] > number / 4, "a thin verification waits"
    assert dear.most == 16
    assert all(value > 1.05 for value in dear.speedups.values())
    thin = played(costs(100, 0.1), rates, 5, 8, (1, 1))
    assert played(costs(100, 0.1), rates, 5, 8, dear.policy.of(8)) < 0.9 * thin


def test_where_every_row_costs_the_same_nothing_is_predicted_in_a_batch() -> None:
    """Alone it saves nothing either: the rows are the same, and checks come on top."""
    dull = ready_plan(costs(0.0, 1.0, whole=1.9), ExitRates((0.7,), 0.98), 5, 16)
    assert dull.most == 0
    some = ready_plan(costs(4.0, 1.0), ExitRates((0.8,), 0.99), 5, 64)
    assert some.most == 8, "1.055 there, 1.014 with 12"
    last = list(some.speedups)[-1]
    assert some.speedups[last] < 1.03, "no larger number is tried once it does not pay"


def test_every_number_up_to_the_slots_has_fills() -> None:
    plan = ready_plan(costs(100, 0.1, 3, whole=4), ExitRates((0.5, 0.5), 0.95), 5, 10)
    assert list(plan.policy.fills) == [*(n for n in NUMBERS if n < 10), 10]
    assert {len(fills) for fills in plan.policy.fills.values()} == {3}
    assert all(max(fills) <= number for number, fills in plan.policy.fills.items())


def test_rates_of_a_replay_bring_its_tokens_again() -> None:
    """Of four drafts a cycle 0.9 + 0.81 + 0.729 + 0.6561 stand where each is right with 0.9."""
    stand = sum(0.9**k for k in range(1, 5))
    played_once = Replay(
        1.5, (1000, 500), (600, 200), (450, round(1000 * stand * 0.2) - 450), 200, 1
    )
    rates = rates_of(played_once)
    assert rates.leaves == pytest.approx((0.6, 0.4))
    assert rates.stands == pytest.approx(0.9, abs=0.01)
    nothing = rates_of(Replay(1.0, (10,), (0,), (0,), 10, 10))
    assert nothing.leaves == (0.0,)
    assert assumed((2, 4)).leaves == (0.5, 0.5)


def test_the_same_question_has_the_same_answer() -> None:
    asked = (costs(30, 2, 3), ExitRates((0.4, 0.6), 0.95), 5, 16)
    assert ready_plan(*asked) == ready_plan(*asked)
    both = itertools.pairwise(
        played(costs(30, 2), ExitRates((0.6,), 0.95), 5, 4, (1, 2)) for _ in "ab"
    )
    assert all(one == other for one, other in both)
