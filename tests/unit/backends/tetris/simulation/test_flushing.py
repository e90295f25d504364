"""When a queue has to leave for its first deadline where those that left are filled in."""

from __future__ import annotations

from typing import Any

import pytest

from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import PlannedStage, StagePlan
from backends.tetris.simulation.layouts import data_parallel, pipeline, regrouped
from tests.support.tetris.four_layers import profile

TIMES = StageTimes(profile(fill_ms=[0.25] * 4))
STAGES = (PlannedStage(0, 2, "V100", 1, 0, 1), PlannedStage(2, 4, "V100", 1, 0, 1))
STAGED = pipeline(TIMES, StagePlan(STAGES, 2, 0, 0, 2.0, 0))


@pytest.mark.parametrize(
    ("layout", "ahead_ms"),
    [
        # two that go on bring the states of two that left, over the cut and into two layers
        (STAGED, 2.5 + 2 * 0.2 + 2 + 2 * 0.25),
        (regrouped(TIMES, {"V100": 1}, (2,)), 2.5 + 2 + 2 * 0.25),
        # half of a batch is filled in for the last two layers; ramps behind the first three
        (data_parallel(TIMES, {"V100": 1}, "shrinking batch"), 4 + 1.5 + 0.5 * 2 * 0.25),
        (data_parallel(TIMES, {"V100": 1}, "plain"), 4),
    ],
)
def test_a_queue_leaves_time_for_the_fills_that_come_with_a_batch(
    layout: Any, ahead_ms: float
) -> None:
    layout.entrance.queue.push([0], [100.0], 0.0)
    assert layout.entrance.queue.flush_ms == pytest.approx(100 - ahead_ms)
