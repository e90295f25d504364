"""Costs of parts where decoding runs them, on a clock that is told."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from backends.engine.costs.cycles import CyclePass, cycle, cycle_costs
from backends.engine.executors.base import Int32, StepRows
from tests.support.engine.told_executor import ToldExecutor

ALWAYS, NEVER = 1.0, 0.0


def passes(leaves: Sequence[float], max_drafts: int, seed: int = 0) -> list[CyclePass]:
    return list(cycle(random.Random(seed), leaves, max_drafts))


def told(leaves: Sequence[float], max_drafts: int) -> list[tuple[int, int, int, bool]]:
    return [(one.index, one.start, one.end, one.asked) for one in passes(leaves, max_drafts)]


def test_a_token_that_no_exit_lets_go_is_verified_alone() -> None:
    assert told([NEVER, NEVER], 5) == [(0, 0, 1, True), (1, 0, 1, True), (2, 0, 1, True)]


def test_all_that_waits_goes_on_together() -> None:
    assert told([ALWAYS, NEVER], 2) == [
        *((0, 0, 1, True), (0, 1, 2, True)),
        (0, 2, 3, False),  # two drafts wait: no exit is asked
        *((1, 0, 3, False), (2, 0, 3, True)),
    ]


def test_a_later_exit_brings_the_next_token_to_the_first_segment() -> None:
    assert told([NEVER, ALWAYS], 1) == [
        *((0, 0, 1, True), (1, 0, 1, True)),
        *((0, 1, 2, False), (1, 1, 2, False)),
        (2, 0, 2, True),
    ]


def test_tokens_leave_as_often_as_told() -> None:
    drawn = [one for seed in range(2000) for one in passes([0.3, 0.5], 4, seed)]
    asked = [sum(one.index == index and one.asked for one in drawn) for index in (0, 1)]
    went_on = sum(one.index == 1 and one.asked for one in drawn)
    assert went_on / asked[0] == pytest.approx(0.7, abs=0.02)
    drafts = sum(one.end - 1 for one in drawn if one.index == 2)
    by_second = drafts - (asked[0] - went_on)
    assert by_second / asked[1] == pytest.approx(0.5, abs=0.02)


class CachedExecutor(ToldExecutor):
    """A cache holds one segment: a pass behind another segment takes longer."""

    segment_us = (10.0, 40.0, 80.0)
    cold_us = 20.0
    row_us = (0.0, 2.0, 4.0)
    head_us = (3.0, 3.0, 7.0)
    head_row_us = (0.0, 0.0, 1.0)
    whole_us = 150.0
    now_s = 0.0
    before = -1

    def __init__(self, **options: Any) -> None:
        super().__init__([], [{}, {}], exits=(2, 4), **options)
        self.calls_made: list[tuple[str, int, int]] = []

    def prefill(self, slot: int, token_ids: Sequence[int]) -> None:
        self.prompt = len(token_ids)

    def advance(self, index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        self.calls_made.append(("advance", index, len(rows)))
        every = np.arange(len(rows))
        assert wanted.tolist() in ([], every.tolist()[-1:], every.tolist())
        self._segment(index, rows)
        self._head(index, len(wanted))
        return [], []

    def segment(self, index: int, rows: StepRows) -> None:
        self.calls_made.append(("segment", index, len(rows)))
        self._segment(index, rows)

    def exit_head(self, index: int, rows: StepRows) -> tuple[list[int], list[float]]:
        self._head(index, len(rows))
        return [], []

    def whole(self, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        assert len(rows) == len(wanted) == 1
        self.calls_made.append(("whole", -1, 1))
        # behind a cycle it finds what a pass of plain decoding does not
        self._takes(self.whole_us - self.cold_us * (self.before >= 0))
        self.before = -1
        return [], []

    def _segment(self, index: int, rows: StepRows) -> None:
        assert 0 < self.prompt <= rows.positions.min()
        assert rows.positions.max() < self.max_len
        us = self.segment_us[index] + self.row_us[index] * (len(rows) - 1)
        self._takes(us + self.cold_us * (self.before != index))
        self.before = index

    def _head(self, index: int, rows: int) -> None:
        if rows:
            self._takes(self.head_us[index] + self.head_row_us[index] * (rows - 1))

    def _takes(self, us: float) -> None:
        self.now_s += us * 1e-6


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> CachedExecutor:
    found = CachedExecutor()
    monkeypatch.setattr("backends.engine.costs.cycles.time.perf_counter", lambda: found.now_s)
    return found


def test_a_segment_that_follows_itself_costs_what_it_does_there(executor: CachedExecutor) -> None:
    found = cycle_costs(executor, [ALWAYS, NEVER], 3)  # type: ignore[arg-type]
    # of three passes with the head two follow one like them
    assert found.segments[0] == pytest.approx(10 + 20 / 3)
    assert found.exit_heads == pytest.approx((3, 3)), "the second is never asked: as the other"
    assert found.final_head == pytest.approx(7 + 3), "all have four rows: they pay as one does"
    assert found.final_head_full == pytest.approx(found.final_head)
    assert found.segments[1:] == pytest.approx((40 + 20 + 6, 80 + 20 + 12))
    assert found.plain == pytest.approx(150), "behind another plain pass"


def test_a_segment_behind_others_is_not_told_as_if_it_followed_itself(
    executor: CachedExecutor,
) -> None:
    found = cycle_costs(executor, [NEVER, NEVER], 5)  # type: ignore[arg-type]
    assert found.segments == pytest.approx((30, 60, 100))
    assert found.segments_full == pytest.approx((30, 60, 100)), "no further rows were seen"
    assert found.exit_heads == pytest.approx((3, 3))
    assert found.final_head == pytest.approx(7)


def test_rows_cost_what_they_do_in_cycles_of_any_length(executor: CachedExecutor) -> None:
    found = cycle_costs(executor, [0.4, 0.6], 5)  # type: ignore[arg-type]
    assert found.segments_full is not None
    assert found.segments[1:] == pytest.approx((60, 100))
    assert found.segments_full[1:] == pytest.approx((60 + 5 * 2, 100 + 5 * 4))
    assert found.final_head == pytest.approx(7)
    assert found.final_head_full == pytest.approx(7 + 5)
    assert 10 < found.segments[0] < 30


def test_costs_and_counts_give_the_time_that_the_cycles_took(executor: CachedExecutor) -> None:
    leaves, drafts = [0.6, 0.5], 5
    costs = cycle_costs(executor, leaves, drafts)  # type: ignore[arg-type]
    played = [one for seed in range(400) for one in passes(leaves, drafts, seed)]
    began = executor.now_s
    for one in played:
        rows = one.end - one.start
        first = 0 if one.index == 2 else rows - 1
        wanted = np.arange(first if one.asked else rows, rows, dtype=np.int32)
        place = executor.prompt + one.start
        executor.advance(one.index, StepRows.span(0, place, [0] * rows), wanted)
    took = 1e6 * (executor.now_s - began)
    checks = [sum(one.asked for one in played if one.index == index) for index in (0, 1)]
    passed = [sum(one.asked and one.index == 1 for one in played)]
    tokens = sum(one.end for one in played if one.index == 2)
    first = checks[0] - passed[0]
    exits = [first, tokens - 400 - first]
    assert sum(costs.spent(400, exits, checks, drafts)) == pytest.approx(took, rel=0.02)


def test_further_rows_are_never_cheaper_than_none(executor: CachedExecutor) -> None:
    executor.row_us = (0.0, -2.0, -4.0)
    found = cycle_costs(executor, [0.4, 0.6], 5)  # type: ignore[arg-type]
    assert found.segments_full == pytest.approx(found.segments)
    assert 60 - 5 * 2 <= found.segments[1] < 60
    assert found.final_head_full == pytest.approx(found.final_head)


def test_cycles_and_plain_passes_take_turns(executor: CachedExecutor) -> None:
    cycle_costs(executor, [0.5, 0.5], 5)  # type: ignore[arg-type]
    kinds = [kind == "whole" for kind, _, _ in executor.calls_made]
    changes = sum(a != b for a, b in itertools.pairwise(kinds))
    assert changes > 20
    assert {"advance", "segment", "whole"} == {kind for kind, _, _ in executor.calls_made}


def test_a_slow_machine_runs_fewer(executor: CachedExecutor) -> None:
    cycle_costs(executor, [0.5, 0.5], 5)  # type: ignore[arg-type]
    many = len(executor.calls_made)
    executor.calls_made.clear()
    executor.segment_us = (1e6, 1e6, 1e6)
    cycle_costs(executor, [0.5, 0.5], 5)  # type: ignore[arg-type]
    assert 0 < len(executor.calls_made) < many / 2


def test_a_short_slot_has_fewer_drafts(executor: CachedExecutor) -> None:
    executor.max_len = 4
    cycle_costs(executor, [ALWAYS, NEVER], 5)  # type: ignore[arg-type]
    assert executor.prompt == 1
    assert max(rows for _, _, rows in executor.calls_made) == 3


@pytest.mark.parametrize("leaves", [(NEVER, NEVER), (0.4, 0.6)])
def test_disturbed_passes_count_for_little(
    executor: CachedExecutor, leaves: Sequence[float]
) -> None:
    """Every seventh pass is held up, whatever its rows and however few have as many."""
    quiet = cycle_costs(executor, leaves, 5)  # type: ignore[arg-type]
    undisturbed, number = executor.advance, [0]

    def disturbed(index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        number[0] += 1
        executor.now_s += (number[0] % 7 == 0) * 1e-3
        return undisturbed(index, rows, wanted)

    executor.advance = disturbed  # type: ignore[method-assign]
    found = cycle_costs(executor, leaves, 5)  # type: ignore[arg-type]
    assert found.segments == pytest.approx(quiet.segments, rel=0.03)
    assert found.segments_full == pytest.approx(quiet.segments_full, rel=0.03)
    assert found.final_head_full == pytest.approx(quiet.final_head_full, rel=0.03)


def test_a_pass_that_came_about_once_may_have_been_held_up(executor: CachedExecutor) -> None:
    leaves, undisturbed, held_up = (0.5, 0.05), executor.advance, [0]
    quiet = cycle_costs(executor, leaves, 5)  # type: ignore[arg-type]

    def disturbed(index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        if (executor.before, index) == (1, 0):
            held_up[0] += 1
            executor.now_s += 1e-3
        return undisturbed(index, rows, wanted)

    executor.advance = disturbed  # type: ignore[method-assign]
    found = cycle_costs(executor, leaves, 5)  # type: ignore[arg-type]
    assert 0 < held_up[0] < 4
    assert found.segments[0] == pytest.approx(quiet.segments[0], rel=0.05)
