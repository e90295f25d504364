"""What the parts of a step cost: read off a clock that is told, in microseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from backends.engine.costs import timing as calibration
from backends.engine.costs.timing import RUNS, layer_costs, measure
from backends.engine.executors.base import Int32, StepRows
from harness.core.pass_costs import StepCosts
from tests.support.engine.told_executor import ToldExecutor


def test_a_call_costs_its_lower_quartile_in_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 24 calls of 1 to 24 us and one that something held up: not mean nor median."""
    seconds = [number * 1e-6 for number in range(1, RUNS)] + [1.0]
    times = iter(seconds)
    clock = _clock(times)
    monkeypatch.setattr("backends.engine.costs.timing.time.perf_counter", lambda: next(clock))
    calls: list[None] = []
    assert calibration._timed(lambda: calls.append(None)) == pytest.approx(6.5)
    assert len(calls) == RUNS + 3
    assert next(times, None) is None, "the first calls are not timed"


def _clock(seconds: Iterator[float]) -> Iterator[float]:
    now = 0.0
    for duration in seconds:
        yield now
        now += duration
        yield now


class TimedExecutor(ToldExecutor):
    """Takes a time of its own for each segment, row and head, on a clock of its own."""

    segment_us = (10.0, 40.0)
    row_us = (1.0, 4.0)
    head_us = (3.0, 7.0)
    now_s = 0.0

    def prefill(self, slot: int, token_ids: Sequence[int]) -> None:
        self.prompt = len(token_ids)

    def advance(self, index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        positions = rows.positions.tolist()
        assert positions == list(range(self.prompt, self.prompt + len(rows)))
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


def test_layers_share_what_is_left_without_the_price_of_a_pass() -> None:
    plain = StepCosts((82.0,), (), 5.0, (98.0,), 6.0)
    cut = StepCosts((22.0, 24.0, 40.0), (3.0, 9.0), 5.0)
    found = layer_costs(plain, cut, 8)
    assert found.per_pass == pytest.approx(2), "two passes more cost 4"
    assert list(found.layers) == pytest.approx([10.0] * 8)
    assert found.layers_full is not None
    assert list(found.layers_full) == pytest.approx([12.0] * 8)
    assert (found.exit_head, found.final_head, found.final_head_full) == (6.0, 5.0, 6.0)
