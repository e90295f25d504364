"""A pipeline whose plan changes while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backends.tetris.pipeline.leaving import LeaveDecisions, drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.pipeline.stragglers import Slowdown
from backends.tetris.pipeline.windows import WindowPlanner
from backends.tetris.profile import Wanted, cluster_from
from backends.tetris.simulation.events import LaneSimulation
from backends.tetris.simulation.layouts import pipeline
from backends.tetris.simulation.replanning import ReplanningSimulation
from benchmarks.tetris import paper
from tests.support.tetris.four_layers import depths, profile


def test_a_change_of_plan_asks_only_for_who_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    depths_of = LeaveDecisions.depths

    def counted(inputs: LeaveDecisions, cuts: Sequence[int] | None = None) -> Any:
        asked.append(len(inputs))
        return depths_of(inputs, cuts)

    model = profile(batch=4, time_share={"V100": {"1": 0.9, "4": 1}})
    cluster = cluster_from({"devices": {"V100": 8}, "price": {"V100": 1}}, "c", model)
    easy, hard = (
        drawn(survival, 8_000, 1) for survival in ([1, 0.9, 0.3, 0.2, 0.2], [1, 1, 0.98, 0.9, 0.9])
    )
    load = np.arange(16_000) / 2.0
    planner = WindowPlanner(model, cluster, Wanted(60))
    monkeypatch.setattr(LeaveDecisions, "depths", counted)
    run = ReplanningSimulation(planner, easy.then(hard), load, 60, window_s=1.5)
    found = run.run()
    changes = [ms for ms, _ in run.changing.plans]
    assert len(changes) > 2
    assert asked[0] == 16_000
    assert asked[1:] == [(found.answered_ms > ms).sum() for ms in changes[1:]]


def test_a_plan_follows_its_workload_and_leaves_a_straggler_out() -> None:
    model = profile(batch=4, time_share={"V100": {"1": 0.9, "4": 1}})
    cluster = cluster_from({"devices": {"V100": 8}, "price": {"V100": 1}}, "c", model)
    easy = drawn([1, 0.9, 0.3, 0.2, 0.2], 30_000, 1)
    hard = drawn([1, 1, 0.98, 0.95, 0.95], 30_000, 2)
    planner = WindowPlanner(model, cluster, Wanted(60))
    slow = {"V100-1": Slowdown(3.0, from_ms=700)}
    run = ReplanningSimulation(planner, easy.then(hard), 64, 60, slow, window_s=0.5)
    found = run.run()
    assert len(found.asked_ms) == 60_000
    assert run.changing.stragglers == {"V100-1"}
    assert len(run.changing.plans) > 2
    left_out = [made for at_ms, made in run.changing.plans if at_ms > 1100]
    assert all(sum(one.count for one in made.stages) <= 7 for made in left_out)
    first, last = run.changing.plans[1][1], run.changing.plans[-1][1]
    assert last.stages[0].end - last.stages[0].first > first.stages[0].end - first.stages[0].first


def test_a_window_that_ends_at_the_first_ramp_changes_the_plan() -> None:
    model = paper.model(8)
    cluster = cluster_from(paper.cluster("v100"), "c", model)
    planner = WindowPlanner(model, cluster, Wanted(100))
    assert len(planner.plan.stages) == 3
    inputs = LeaveDecisions(np.ones((30_000, 11), bool))
    run = ReplanningSimulation(planner, inputs, 256, 100, window_s=0.3)
    again = run.run().answered_ms.max()
    once = LaneSimulation(
        pipeline(StageTimes(model), run.changing.plans[0][1]), StageTimes(model), inputs, 256, 100
    ).run()
    assert [one.end for one in planner.plan.stages] == [1, 2, 12], "half are alive behind layer 1"
    assert again < 0.7 * once.answered_ms.max()


def test_a_straggler_is_kept_where_no_plan_does_without_it() -> None:
    model = profile(survival=[1] * 5)
    cluster = cluster_from({"devices": {"V100": 2}, "price": {"V100": 1}}, "c", model)
    wanted = replace(Wanted(60), target=900.0)
    planner, slow = WindowPlanner(model, cluster, wanted), {"V100-1": Slowdown(4.0)}
    run = ReplanningSimulation(planner, depths(*[4] * 4_000), 8, 60, slow, 0.5)
    run.run()
    assert len(run.changing.plans) == 1
