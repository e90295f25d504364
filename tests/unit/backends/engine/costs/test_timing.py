"""What the parts of a step cost: read off a clock that is told, in microseconds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from backends.engine.costs.timing import (
    FEWEST_RUNS,
    KINDS,
    RUNS,
    WARM_UP,
    _rounds,
    layer_costs,
    measure,
)
from backends.engine.executors.base import Int32, StepRows
from harness.core.pass_costs import StepCosts
from tests.support.engine.told_executor import ToldExecutor


def test_a_part_costs_its_lower_quartile_in_microseconds() -> None:
    """Of 24 calls of 1 to 24 us and one that something held up: not mean nor median."""
    turns: dict[tuple[int, int], int] = {}

    def timed(kind: int, index: int) -> float:
        turn = turns[kind, index] = turns.get((kind, index), -WARM_UP) + 1
        return 1.0 if turn in (1 - WARM_UP, RUNS) else (turn + 100 * index) * 1e-6

    found = _rounds(timed, 2, KINDS)
    assert set(turns) == {(kind, index) for kind in range(4) for index in range(2)}
    assert set(turns.values()) == {RUNS}
    assert found == [pytest.approx([6.5, 106.5])] * 4, "the first calls are not counted"


def test_a_large_model_is_timed_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], [0]

    def slow(kind: int, index: int) -> float:
        now[0] += 0.25
        calls[0] += 1
        return 0.25

    monkeypatch.setattr("backends.engine.costs.timing.time.perf_counter", lambda: now[0])
    assert _rounds(slow, 1, KINDS) == [[pytest.approx(2.5e5)]] * 4
    assert calls == [4 * (WARM_UP - 1 + FEWEST_RUNS)], "two seconds are enough to warm up"


class TimedExecutor(ToldExecutor):
    """Takes a time of its own for each segment, row and head, on a clock of its own."""

    segment_us = (10.0, 40.0)
    row_us = (1.0, 4.0)
    head_us = (3.0, 7.0)
    now_s = 0.0
    most_rows = 0

    def prefill(self, slot: int, token_ids: Sequence[int]) -> None:
        self.prompt = len(token_ids)

    def advance(self, index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        positions = rows.positions.tolist()
        assert positions == list(range(self.prompt, self.prompt + len(rows)))
        self.most_rows = max(self.most_rows, len(rows))
        cost = self.segment_us[index] + self.row_us[index] * (len(rows) - 1)
        cost += self.head_us[index] * len(wanted)
        self.now_s += cost * 1e-6
        return [], []


def test_segments_and_heads_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = TimedExecutor([], [{}])
    monkeypatch.setattr("backends.engine.costs.timing.time.perf_counter", lambda: executor.now_s)
    found = measure(executor, 5)  # type: ignore[arg-type]
    assert found.segments == pytest.approx((10, 40))
    assert found.segments_full == pytest.approx((15, 60)), "of six rows"
    assert found.exit_heads == pytest.approx((3,))
    assert found.final_head == pytest.approx(7)
    assert found.final_head_full == pytest.approx(42)
    assert executor.prompt == executor.max_len - 6


def test_rows_that_nobody_asks_for_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = TimedExecutor([], [{}])
    monkeypatch.setattr("backends.engine.costs.timing.time.perf_counter", lambda: executor.now_s)
    found = measure(executor, 5, full=False)  # type: ignore[arg-type]
    assert found.segments == pytest.approx((10, 40))
    assert found.final_head == pytest.approx(7)
    assert found.segments_full is None
    assert found.final_head_full is None
    assert executor.most_rows == 1


def test_layers_share_what_is_left_without_the_price_of_a_pass() -> None:
    plain = StepCosts((82.0,), (), 5.0, (98.0,), 6.0)
    cut = StepCosts((22.0, 24.0, 40.0), (3.0, 9.0), 5.0)
    found = layer_costs(plain, cut, 8)
    assert found.per_pass == pytest.approx(2), "two passes more cost 4"
    assert list(found.layers) == pytest.approx([10.0] * 8)
    assert found.layers_full is not None
    assert list(found.layers_full) == pytest.approx([12.0] * 8)
    assert (found.exit_head, found.final_head, found.final_head_full) == (6.0, 5.0, 6.0)
