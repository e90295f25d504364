"""Plans and windows of a pipeline that plans while it serves, from counts written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.metrics.plans import plans, windows
from results.rows import cells, summaries
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of

PLANS = {
    "plan_at_ms_1": 0.0, "plan_left_out_1": 0.0, "plan_workers_1_10": 1.0, "plan_workers_1_9": 2.0,
    "plan_at_ms_2": 2500.0, "plan_left_out_2": 1.0, "plan_workers_2_10": 2.0,
}  # fmt: skip
WINDOWS = {
    "window_inputs_1": 40.0, "window_alive_1_2": 10.0, "window_alive_1_10": 4.0,
    "window_inputs_2": 50.0, "window_alive_2_2": 40.0, "window_forecast_2_2": 0.25,
}  # fmt: skip


def test_plans_have_their_stages_in_order() -> None:
    found = plans({**WINDOWS, **PLANS, "stage_rows_1": 3.0})
    assert found == {
        "1": {"at_s": 0.0, "left_out": 0.0, "workers": {"9": 2.0, "10": 1.0}},
        "2": {"at_s": 2.5, "left_out": 1.0, "workers": {"10": 2.0}},
    }
    assert found is not None
    assert list(found["1"]["workers"]) == ["9", "10"]


def test_windows_have_shares() -> None:
    found = windows({**PLANS, **WINDOWS})
    assert found is not None
    assert found["1"] == {"inputs": 40.0, "alive": {"2": 0.25, "10": 0.1}, "forecast": {}}
    assert list(found["1"]["alive"]) == ["2", "10"]
    assert found["2"]["alive"]["2"] == pytest.approx(0.8)
    assert found["2"]["forecast"] == {"2": 0.25}


def test_what_was_not_told_whole_is_left_out() -> None:
    assert plans({"plan_at_ms_1": 3.0, "plan_left_out_1": 0.0}) is None
    assert plans({"plan_workers_1_4": 3.0}) is None
    assert windows({"window_alive_1_2": 3.0}) is None
    assert windows({"window_inputs_1": 0.0}) is None
    assert plans({}) is windows({}) is None


def test_a_trial_has_them_and_a_cell_of_several_has_none(tmp_path: Path) -> None:
    found = [
        record(
            trial("tetris-classifier", repeat=repeat),
            [generation("a", [10], telemetry=PLANS), generation("b", [20], telemetry=WINDOWS)],
        )
        for repeat in range(2)
    ]
    listed = [{"name": "tetris-classifier", "options": {}}]
    run = run_of(tmp_path, *found, backends=listed, reference="tetris-classifier")
    for row in summaries(run):
        assert row["plans"]["2"]["at_s"] == 2.5
        assert row["planned_windows"]["2"]["inputs"] == 50.0
    windows_of = run.trials["planned_windows"]
    assert [row["2"]["inputs"] for row in windows_of] == [50.0, 50.0]
    (cell,) = cells(run)
    assert cell["plans"] is None
    assert cell["planned_windows"] is None
