"""What windows of a pipeline that serves show, and the stages that follow, without processes."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from backends.classifiers.flight import InputInFlight
from backends.tetris.labels.jobs import LabelJob
from backends.tetris.labels.replanned import (
    BLOCK_BATCHES,
    BLOCKS,
    FIRST_BLOCKS,
    LEAST_INPUTS,
    WARM_UP,
    ServedPlans,
    plan_of,
)
from backends.tetris.labels.stages import StageSpan, spans
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.profile import DeviceCluster, Wanted
from backends.tetris.simulation.planning_ahead import ThreadMaker
from tests.support.tetris.four_layers import served_profile

WINDOW_MS = 1000.0


def made(ends: tuple[int, ...] = (1, 4), replicas: tuple[int, ...] = (1, 1)) -> ServedPlans:
    known = served_profile()
    cluster = DeviceCluster({"core": sum(replicas)}, {"core": 1.0})
    first = plan_of(spans(ends, replicas), known.batch)
    return ServedPlans(
        partial(WindowPlanner, known, cluster, Wanted(1e9), first),
        (1, 2, 3),
        WINDOW_MS / 1e3,
        ThreadMaker(),
    )


def answered(*sure_after: int) -> list[InputInFlight]:
    found = [InputInFlight("", (1,)) for _ in sure_after]
    for one, layer in zip(found, sure_after, strict=True):
        one.memory.sure_after = layer
    return found


def window_over(plans: ServedPlans, at_ms: float) -> None:
    """Until its plan is there."""
    plans.between(at_ms)
    for _ in range(2000):
        plans.between(at_ms)
        if plans.shut or plans.coming_ms(at_ms) == at_ms + WINDOW_MS:
            return
        time.sleep(0.005)
    raise AssertionError("no plan came")


def ran(plans: ServedPlans, worker: int, times: float, blocks: int) -> None:
    """Batches for so many blocks of a worker that takes so many times what was measured."""
    span = next((one.first, one.end) for one in plans._stages() if worker in one.workers)
    expected = float(span[1] - span[0])
    inputs: Any = (None, None)
    for _ in range(blocks * BLOCK_BATCHES):
        plans.ran(worker, LabelJob(span, inputs, (), "float32", 1e3 * times * expected * 6))


def test_who_leaves_early_shortens_the_first_stage() -> None:
    plans = made(ends=(3, 4))
    plans.begin(0.0)
    plans.saw(answered(*[1] * 36, *[2] * 2, *[0] * 2))
    window_over(plans, WINDOW_MS)
    assert plans.shut
    assert plans.change(1500.0) == [StageSpan(0, 1, (0,)), StageSpan(1, 4, (1,))]
    assert not plans.shut
    counts = plans.counts()
    assert counts["window_inputs_1"] == 40
    assert [counts[f"window_alive_1_{ramp}"] for ramp in (1, 2, 3)] == [4, 2, 2]
    assert not [name for name in counts if name.startswith("window_forecast_1")]
    assert counts["plan_at_ms_1"] == 0
    assert counts["plan_workers_1_3"] == counts["plan_workers_1_4"] == 1
    assert counts["plan_at_ms_2"] == 1500
    assert counts["plan_workers_2_1"] == counts["plan_workers_2_4"] == 1
    assert plans.counts() == {}


def test_the_next_window_has_its_forecast() -> None:
    plans = made(ends=(1, 4))
    plans.begin(0.0)
    for window in (1, 2):
        plans.saw(answered(*[1] * 30, *[0] * 10))
        plans.between((window - 0.5) * WINDOW_MS)
        assert f"window_inputs_{window}" not in plans._sums
        window_over(plans, window * WINDOW_MS)
    counts = plans.counts()
    assert counts["window_forecast_2_1"] == pytest.approx(0.25)
    assert counts["window_alive_2_1"] == 10


def test_replicas_go_where_the_work_is() -> None:
    plans = made(ends=(1, 4), replicas=(3, 1))
    plans.begin(0.0)
    plans.saw(answered(*[1] * 4, *[0] * 36))
    window_over(plans, WINDOW_MS)
    assert plans.shut
    stages = plans.change(0.0)
    assert sorted(worker for one in stages for worker in one.workers) == [0, 1, 2, 3]
    assert len(stages[-1].workers) > 1


def test_a_window_goes_on_until_enough_are_answered() -> None:
    plans = made(ends=(3, 4))
    plans.begin(0.0)
    plans.saw(answered(*[1] * (LEAST_INPUTS - 1)))
    for _ in range(3):
        plans.between(9 * WINDOW_MS)
    assert plans.coming_ms(9 * WINDOW_MS) == float("inf")
    assert "window_inputs_1" not in plans.counts()
    plans.saw(answered(1))
    window_over(plans, 9 * WINDOW_MS)
    assert plans.counts()["window_inputs_1"] == LEAST_INPUTS


def test_a_slow_worker_is_left_out_of_the_next_plan() -> None:
    plans = made(ends=(4,), replicas=(3,))
    plans.begin(0.0)
    for worker, times in ((0, 1.0), (1, 1.0), (2, 2.0)):
        ran(plans, worker, times, FIRST_BLOCKS + 6)
    plans.saw(answered(*[0] * 40))
    window_over(plans, WINDOW_MS)
    assert plans.shut
    stages = plans.change(0.0)
    assert sorted(worker for one in stages for worker in one.workers) == [0, 1]
    assert plans.counts()["plan_left_out_2"] == 1


def test_who_is_alone_in_its_stage_is_compared_with_nobody() -> None:
    """Nor is one of two replicas that alone has run enough batches."""
    for replicas, enough in (((1, 1), (0, 1)), ((2, 1), (0, 2)), ((2, 1), (0, 1, 2))):
        plans = made(ends=(2, 4), replicas=replicas)
        plans.begin(0.0)
        for worker in range(sum(replicas)):
            ran(plans, worker, 1.0, FIRST_BLOCKS)
        for worker in enough:
            ran(plans, worker, 1.0 if worker == 2 else 4.0, 12)
        plans.saw(answered(*[2] * 20, *[0] * 20))
        window_over(plans, WINDOW_MS)
        assert not plans.changing.stragglers


def test_who_has_become_slow_is_slow_in_other_stages_too() -> None:
    """Three slow blocks are too few to be judged by; then the cuts change, and it runs before its
    new peer does."""
    plans = made(ends=(3, 4), replicas=(1, 3))
    plans.begin(0.0)
    for worker in (0, 1, 2, 3):
        ran(plans, worker, 1.0, FIRST_BLOCKS + 1)
    ran(plans, 3, 3.0, 3)
    plans.saw(answered(*[0] * 40))
    window_over(plans, WINDOW_MS)
    assert not plans.changing.stragglers
    stages = plans.change(WINDOW_MS)
    assert any(3 in one.workers and len(one.workers) > 1 for one in stages)
    for worker in (3, 2, 1, 0):
        ran(plans, worker, 3.0 if worker == 3 else 1.0, FIRST_BLOCKS + 6)
    plans.saw(answered(*[0] * 40))
    window_over(plans, 2 * WINDOW_MS)
    assert plans.changing.stragglers == {"core-3"}


def test_what_a_late_stage_takes_is_not_held_against_its_worker_in_another() -> None:
    plans = made(ends=(3, 4), replicas=(3, 1))
    plans.begin(0.0)
    for worker in (0, 1, 2, 3):
        ran(plans, worker, 2.0 if worker == 3 else 1.0, FIRST_BLOCKS + 6)
    for window in (1, 2):
        plans.saw(answered(*[0] * 40))
        window_over(plans, window * WINDOW_MS)
        assert not plans.changing.stragglers
        if window == 1:
            assert plans.change(WINDOW_MS) == [StageSpan(0, 4, (0, 1, 2, 3))]
            for worker, blocks in ((0, FIRST_BLOCKS + 1), (1, 1), (2, 1), (3, 1)):
                ran(plans, worker, 1.0, blocks)


def test_a_block_is_of_one_stage() -> None:
    """What was left of a block when the cuts changed says nothing of the new ones."""
    plans = made(ends=(4,), replicas=(1,))
    plans.begin(0.0)
    inputs: Any = (None, None)
    half, half_us = BLOCK_BATCHES // 2, 1e3 * WINDOW_MS / BLOCKS / BLOCK_BATCHES
    for span, batches in (((0, 4), half), ((0, 2), half)):
        for _ in range(batches):
            plans.ran(0, LabelJob(span, inputs, (), "float32", half_us))
    assert plans._usual == {}
    for _ in range(half):
        plans.ran(0, LabelJob((0, 2), inputs, (), "float32", half_us))
    assert list(plans._usual) == [(0, 2)]
    assert plans._usual[0, 2] == [pytest.approx(half_us / 1e3 / 2)]


def test_a_few_batches_make_no_block_however_short_a_window_is() -> None:
    plans = made(ends=(4,), replicas=(1,))
    plans.begin(0.0)
    inputs: Any = (None, None)
    for batch in range(BLOCK_BATCHES):
        assert plans._usual == {}, batch
        plans.ran(0, LabelJob((0, 4), inputs, (), "float32", 1e9))
    assert len(plans._usual[0, 4]) == 1


def test_a_process_that_was_started_anew_is_not_judged_by_its_first_batches() -> None:
    plans = made(ends=(4,), replicas=(3,))
    plans.begin(0.0)
    ran(plans, 0, 1.0, FIRST_BLOCKS)
    plans.replaced(2)
    for _ in range(WARM_UP):
        plans.ran(2, LabelJob((0, 4), (None, None), (), "float32", 1e9))  # type: ignore[arg-type]
    for worker in (0, 1, 2):
        ran(plans, worker, 1.0, 6)
    plans.saw(answered(*[0] * 40))
    window_over(plans, WINDOW_MS)
    assert not plans.changing.stragglers


def test_one_slow_batch_makes_no_straggler() -> None:
    plans = made(ends=(4,), replicas=(3,))
    plans.begin(0.0)
    inputs: Any = (None, None)
    for worker in (0, 1, 2):
        for batch in range(400):
            slow = 8.0 if worker == 2 and batch == 399 else 1.0
            plans.ran(worker, LabelJob((0, 4), inputs, (), "float32", 4e3 * slow))
    plans.saw(answered(*[0] * 40))
    window_over(plans, WINDOW_MS)
    assert not plans.changing.stragglers


def test_a_trial_begins_with_the_stages_of_the_beginning() -> None:
    plans = made(ends=(3, 4))
    plans.begin(0.0)
    plans.saw(answered(*[1] * 40))
    window_over(plans, WINDOW_MS)
    plans.change(0.0)
    assert plans.start_over() == [StageSpan(0, 3, (0,)), StageSpan(3, 4, (1,))]
    assert set(plans.counts()) == {
        "plan_at_ms_1", "plan_left_out_1", "plan_workers_1_3", "plan_workers_1_4",
    }  # fmt: skip
    assert not plans.shut
