"""Counted passes at measured costs, worked out by hand, and the costs as they are told."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.pass_costs import StepCosts, costs_from_json

COSTS = StepCosts((10.0, 20.0, 30.0), (2.0, 3.0), 5.0, (10.0, 25.0, 40.0), 9.0)
ONE_ROW = 18 * 10 + 13 * 20 + 10 * 30 + 18 * 2 + 13 * 3 + 10 * 5
"""18 tokens in the first segment, of which 5 leave at its exit and 3 at the second."""
MORE = 5 * (25 - 20) / 5 + 8 * (40 - 30) / 5 + 8 * (9 - 5) / 5


def test_counted_passes_are_charged_what_they_cost() -> None:
    one_row, more = COSTS.spent(10, (5, 3), (18, 13), 5)
    assert (one_row, more) == pytest.approx((ONE_ROW, MORE))
    twice = COSTS.spent(
        *(np.array([10.0, 20.0]),),
        [np.array([5.0, 10.0]), np.array([3.0, 6.0])],
        [np.array([18.0, 36.0]), np.array([13.0, 26.0])],
        5,
    )
    assert [row.tolist() for row in twice] == [
        pytest.approx([ONE_ROW, 2 * ONE_ROW]),
        pytest.approx([MORE, 2 * MORE]),
    ]


def test_without_exits_it_is_plain_decoding() -> None:
    plain = StepCosts((60.0,), (), 5.0)
    assert plain.spent(16, (), (), 5) == (16 * 65.0, 0.0)
    assert plain.per_token() == 65.0
    assert StepCosts((60.0,), (), 5.0, plain=50.0).per_token() == 50.0


def test_rows_that_are_cheaper_together_cost_nothing_more() -> None:
    padded = StepCosts((10.0, 20.0), (1.0,), 5.0, (9.0, 19.0), 4.0)
    assert padded.spent(10, (5,), (15,), 5)[1] == 0.0


@pytest.mark.parametrize("costs", [COSTS, StepCosts((60.0,), (), 5.0, plain=50.0)])
def test_what_is_told_is_read_back(costs: StepCosts) -> None:
    assert costs_from_json(costs.to_json()) == costs


def test_costs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="one head fewer"):
        StepCosts((1.0, 1.0), (), 1.0)
    with pytest.raises(ValueError, match="not negative"):
        StepCosts((1.0, float("nan")), (1.0,), 1.0)
    with pytest.raises(ValueError, match="1 full costs"):
        StepCosts((1.0, 1.0), (1.0,), 1.0, (1.0,))
    with pytest.raises(KeyError, match="exit_head_us"):
        costs_from_json({"segment_us": [1.0]})
