"""What drafts cost: computed by hand, and timed on small models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch

from backends.engine.costs.draft_costs import (
    DraftModelCosts,
    FirstLayersCosts,
    LookupCosts,
    PartialPass,
    SearchCosts,
)
from backends.engine.costs.row_costs import RowCosts, lower_quartiles, pass_costs, row_costs
from backends.engine.costs.timing import measure
from backends.engine.sublayers.sets import Sublayers
from tests.support.engine.random_models import open_executor, random_model


def test_costs_between_and_beyond_what_was_timed() -> None:
    costs = RowCosts((1, 2, 4), (10.0, 20.0, 60.0), positions=100, cache_us=5.0)
    assert [costs.of(rows, 100) for rows in (1, 1.5, 2, 3, 4, 6)] == [10, 15, 20, 40, 60, 100]
    assert costs.of(2, 300) == 30
    assert costs.of(1, 50) == 7.5
    assert RowCosts((1, 2), (10.0, 20.0), 512, 150.0).of(1, 2) == 5, "timed ill, but not negative"
    flat = RowCosts((1, 2), (100.0, 100.0), 100, 0.0)
    small = RowCosts((1, 2), (10.0, 10.0), 100, 0.0)
    assert DraftModelCosts(flat, small).of(3, 100, [1.0, 0.5], [1.0, 0.5]) == [100, 110, 120]
    assert DraftModelCosts(flat, small).of(1, 100, [0.5, 0.0, 0.0], [0.5, 0.0, 0.0]) == [
        100,
        110,
        115,
        115,
    ]
    assert DraftModelCosts(flat, small).of(2, 100, [0.5, 0.5], [0.5, 0.5]) == [100, 110, 117.5], (
        "one of two"
    )
    third = RowCosts((1, 2), (70.0, 70.0), 100, 0.0)
    left_out = Sublayers(frozenset({1}), frozenset({0, 1}))
    partial = PartialPass(flat, third, small, 4, lambda: left_out)
    # a layer's attention takes 30 / 4 us and its MLP 90 / 4, of four layers
    assert partial.of(1, 100) == 100 - 30 / 4 - 2 * 90 / 4
    assert DraftModelCosts(flat, partial).of(1, 100, [1.0], [1.0]) == [100, 147.5]
    searched = SearchCosts(DraftModelCosts(flat, small), flat, lambda: 0.25, 16)
    assert searched.of(1, 100, [1.0, 1.0], [1.0, 1.0]) == [100, 135, 145], "and a quarter of a pass"
    assert LookupCosts(flat).of(1, 100, [0.5], [0.5]) == [100, 110]
    assert FirstLayersCosts(small, flat).of(1, 100, [1.0, 1.0], [1.0, 1.0]) == [110, 120, 130]


def test_a_pass_that_other_work_made_longer_does_not_make_rows_look_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def timed(calls: Mapping[int, object]) -> dict[int, float]:
        return {rows: 100.0 + 5 * rows + 400 * (rows in (2, 64)) for rows in calls}

    monkeypatch.setattr("backends.engine.costs.row_costs.lower_quartiles", timed)
    costs = row_costs(open_executor(random_model("llama"), ()))
    seen = dict(zip(costs.rows, costs.us, strict=True))
    assert (seen[1], seen[2], seen[4], seen[48]) == (105, 120, 120, 340)


def test_several_sequences_are_not_timed_behind_a_large_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What such a pass leaves behind was taken for the price of a sequence's cache."""
    orders: list[list[int]] = []

    def timed(calls: Mapping[int, object]) -> dict[int, float]:
        orders.append(list(calls))
        return dict.fromkeys(calls, 100.0)

    monkeypatch.setattr("backends.engine.costs.row_costs.lower_quartiles", timed)
    row_costs(open_executor(random_model("llama"), (), 4))
    (order,) = orders
    assert order[:4] == [-1, 1, 0, 2], "the first, which stands behind the largest, is not used"
    assert sorted(order[1:]) == [0, 1, *order[3:]], "each once"


def test_a_device_is_waited_for_before_and_behind_what_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that hands nothing back returns once it is launched."""
    done: list[str] = []
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: done.append("waited"))
    lower_quartiles({1: lambda: done.append("called")}, 0.0)
    assert set(zip(done[::3], done[1::3], done[2::3], strict=True)) == {
        ("waited", "called", "waited")
    }
    executor = open_executor(random_model("llama"), ())
    monkeypatch.setattr(executor, "advance", lambda *_: done.append("advanced"))
    done.clear()
    measure(executor, 2)
    assert done.count("waited") == done.count("advanced")


def test_costs_of_a_thinned_pass_are_measured() -> None:
    executor = open_executor(random_model("llama"), ())
    found = PartialPass.measure(executor, Sublayers)
    assert found.layers == 6
    assert found.of(1, found.whole.positions) == found.whole.us[0]
    assert found.no_attention.rows == found.no_mlp.rows == found.whole.rows


def test_costs_of_an_executor_grow_with_rows() -> None:
    executor = open_executor(random_model("llama", torch.bfloat16), (2,))
    costs = row_costs(executor)
    assert costs.rows[0] == 1
    assert costs.rows[-1] < executor.max_len
    assert list(costs.us) == sorted(costs.us)
    assert costs.us[0] > 0
    assert row_costs(executor, 1, 2).rows == costs.rows


def test_passes_in_one_call_have_costs_too() -> None:
    executor = open_executor(random_model("tied", torch.bfloat16), ())
    apart, together = row_costs(executor), pass_costs(executor)
    assert together.rows == apart.rows
    assert all(us > 0 for us in together.us)


def test_a_first_pass_computes_all_that_the_last_verifications_brought() -> None:
    flat = RowCosts((1, 2), (100.0, 100.0), 100, 0.0)
    small = RowCosts((1, 2), (10.0, 10.0), 100, 0.0)
    rows = RowCosts((1, 2), (40.0, 50.0), 100, 7.0)
    anew = DraftModelCosts(flat, small, anew=rows)
    # two of one row, two sequences' of two rows each: 10 a row beyond the first
    assert anew.of(1, 300, [1.0], [0.0]) == [100, 110]
    assert anew.of(2, 300, [1.0], [1.0]) == [100, 140]
    assert anew.of(2, 300, [1.0, 1.0], [1.0, 0.5]) == [100, 140, 160], "two and a half each"


def test_reading_is_timed_by_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(calls: Mapping[int, Callable[[], object]]) -> dict[int, float]:
        for call in calls.values():
            call()
        return {rows: 30.0 + 2 * rows for rows in calls}

    read: list[int] = []
    monkeypatch.setattr("backends.engine.costs.row_costs.lower_quartiles", timed)
    executor = open_executor(random_model("llama"), ())
    flat = RowCosts((1, 2), (10.0, 10.0), 100, 0.0)
    alone = DraftModelCosts(flat, flat)
    costs = alone.with_reading(executor, lambda rows: read.append(len(rows)))
    (prompt,) = read
    assert prompt == min(128, executor.max_len)
    assert costs.read_us == 30 / prompt
    assert costs.anew is None
    read.clear()
    behind = alone.with_reading(executor, lambda rows: read.append(len(rows)), anew=True)
    most = max(read)
    assert sorted(read) == [1, 8, 32, most]
    assert most == min(128, executor.max_len - 1)
    assert behind.read_us == (30 + 2 * most) / most
    found = behind.anew
    assert found is not None
    assert found.of(3, found.positions) == 36
