"""Costs of single segments and of all in one call, on a clock that is told."""

from __future__ import annotations

import pytest

from backends.engine.executors.base import Int32, StepRows
from backends.engine.segments.measured import ROWS, segment_costs
from tests.support.engine.told_executor import ToldExecutor


class ClockedExecutor(ToldExecutor):
    """Takes a time of its own for each segment and row, and one for the caches of others."""

    fixed_us = (10.0, 40.0)
    row_us = (1.0, 4.0)
    head_us = (3.0, 0.5)
    sequence_us = 2.0
    now_s = 0.0

    def __init__(self) -> None:
        super().__init__([], [{}])
        self.slots, self.max_len = 8, 512
        self.order: list[int] = []

    def prefill(self, slot: int, token_ids: object) -> None:
        """Takes no time."""

    def advance(self, index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        assert len(wanted) in (0, len(rows)), "the head is asked of all rows, or of none"
        self.order.append(index)
        cost = self.fixed_us[index] + self.row_us[index] * len(rows)
        self._pass(cost + self.head_us[index] * len(wanted))
        return [], []

    def whole(self, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        self.order.append(2)
        sequences = len(set(rows.slots.tolist()))
        self._pass(45 + 5 * len(rows) + self.sequence_us * (sequences - 1))
        return [], []

    def _pass(self, us: float) -> None:
        self.now_s += us * 1e-6


def test_each_segment_and_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ClockedExecutor()
    monkeypatch.setattr("backends.engine.costs.row_costs.time.perf_counter", lambda: executor.now_s)
    found = segment_costs(executor)  # type: ignore[arg-type]
    step = [0, 1] * len(ROWS) + [0, 1, 2] * len(ROWS) + [2]
    assert executor.order[: len(step)] == step, "as in a step, each after the one before it"
    (head,) = found.heads
    assert head.us == pytest.approx([3 * rows for rows in ROWS])
    first, last = found.segments
    assert first.rows == ROWS
    assert first.us == pytest.approx([10 + rows for rows in ROWS])
    assert last.us == pytest.approx([40 + 4.5 * rows for rows in ROWS])
    assert found.whole.us == pytest.approx([45 + 5 * rows for rows in ROWS])
    assert found.whole.cache_us == pytest.approx(2)
    assert first.cache_us == pytest.approx(2 * 2 / 8), "two of eight layers"
