"""What the next window's plan knows of the windows before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backends.tetris.pipeline.windows import WindowPlanner, seen_survival
from backends.tetris.profile import Wanted, cluster_from, profile_from
from tests.unit.backends.tetris.pipeline.test_rules import PROFILE


def test_survival_between_cuts_keeps_its_shape() -> None:
    before = (1.0, 0.9, 0.8, 0.6, 0.4)
    found = seen_survival(before, [2], [0.4])
    assert found == pytest.approx((1.0, 0.7, 0.4, 0.3, 0.2))
    flat = seen_survival((1.0, 1.0, 1.0), [1], [0.5])
    assert flat == pytest.approx((1.0, 0.5, 0.5))
    assert seen_survival(before, [], []) == pytest.approx(before)
    assert seen_survival((1.0, 0.5, 0.0, 0.0), [2], [0.4]) == pytest.approx((1.0, 0.7, 0.4, 0.4))


def test_survival_comes_back_after_a_window_that_nobody_survived() -> None:
    survival = (1.0, 0.9, 0.6, 0.5, 0.4)
    profile = profile_from({**PROFILE, "survival": list(survival)}, "p")
    cluster = cluster_from({"devices": {"V100": 4}, "price": {"V100": 1}}, "c", profile)
    planner = WindowPlanner(profile, cluster, Wanted(100))
    planner.next_plan({2: 0.0})
    assert planner.profile.survival == pytest.approx((1.0, 0.75, 0.0, 0.0, 0.0), abs=0.01)
    planner.next_plan({1: 0.3, 3: 0.1})
    planner.next_plan({2: 0.6})
    assert planner.profile.survival == pytest.approx(survival)


def test_only_what_a_window_saw_is_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cut of the windows before, too; the layers between have no value of their own."""
    asked: list[list[list[float]]] = []

    def last(history: Any) -> Any:
        asked.append(history.tolist())
        return history[-1]

    monkeypatch.setattr("backends.tetris.pipeline.windows.forecast", last)
    survival = [1.0, 0.9, 0.6, 0.5, 0.4]
    profile = profile_from({**PROFILE, "survival": survival}, "p")
    cluster = cluster_from({"devices": {"V100": 4}, "price": {"V100": 1}}, "c", profile)
    planner = WindowPlanner(profile, cluster, Wanted(100))
    planner.next_plan({2: 0.3})
    planner.next_plan({1: 0.8})
    assert asked[0] == [[0.3]]
    assert np.array(asked[1]) == pytest.approx(np.array([[0.825, 0.3], [0.8, 0.6 * 0.8 / 0.9]]))
    assert planner.profile.survival == pytest.approx((1.0, *(0.8 / 0.9 * np.array(survival[1:]))))


def test_the_next_plan_knows_survival_and_stragglers() -> None:
    profile = profile_from({**PROFILE, "survival": [1, 1, 0.5, 0.5, 0.5]}, "p")
    cluster = cluster_from({"devices": {"V100": 4}, "price": {"V100": 1}}, "c", profile)
    planner = WindowPlanner(profile, cluster, Wanted(100))
    before = planner.plan
    assert len(before.stages) > 1
    cuts = [one.end for one in before.stages[:-1]]
    assert not planner.next_plan({}, [])
    assert planner.next_plan(dict.fromkeys(cuts, 1.0), [])
    assert len(planner.plan.stages) == 1  # nobody leaves: data parallelism
    assert planner.next_plan({}, ["V100-1"])
    assert sum(one.count for one in planner.plan.stages) == 3
    assert planner.left_out == {"V100-1"}
    kept = planner.plan
    assert not planner.next_plan({}, [f"V100-{n}" for n in range(4)])
    assert planner.plan is kept
