"""What stages count, added up by hand."""

from __future__ import annotations

from pathlib import Path

from harness.core.nouns import Load, Workload
from results.metrics.stages import by_stage
from results.rows import cells, summaries
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of

FIRST = {"passes": 2.0, "rows": 3.0, "layers": 9.0, "left": 2.0, "filled": 0.0}


def test_counts_are_sorted_by_stage() -> None:
    sums = {"stage_rows_10": 1.0, "stage_rows_2": 3.0, "stage_left_2": 1.0, "stage_replaced_2": 4.0}
    found = by_stage({**sums, "steps": 7.0, "stage_unknown_3": 1.0}, 0.5)
    assert found is not None
    assert list(found) == ["2", "10"]
    zeros = dict.fromkeys((*FIRST, "pass_us", "other_us"), 0.0)
    times = {"window_us": 5e5, "worker_us": 5e5}
    assert found["2"] == {**zeros, "rows": 3.0, "left": 1.0, "replaced": 4.0, **times}


def test_the_time_of_a_stage_is_that_of_its_workers() -> None:
    found = by_stage({"stage_rows_1": 1.0, "stage_worker_us_1": 9e5}, 0.5)
    assert found is not None
    assert found["1"]["worker_us"] == 9e5
    assert found["1"]["window_us"] == 5e5


def test_without_stages_or_time_there_is_nothing() -> None:
    assert by_stage({"steps": 4.0}, 1.0) is None
    assert by_stage({"stage_rows_1": 4.0}, None) is None


def test_trials_sum_over_requests_and_cells_over_trials(tmp_path: Path) -> None:
    counts = {f"stage_{name}_1": value for name, value in FIRST.items()}
    times = {"stage_pass_us_1": 4000.0, "stage_other_us_1": 500.0, "stage_replaced_1": 1.0}
    found = [
        record(
            trial(
                "tetris", workload=Workload("gsm8k", checksum="sum"),
                load=Load("closed", concurrency=2), repeat=repeat,
            ),
            [generation(f"r{i}", [10, 20], telemetry=counts | times) for i in range(2)],
        )
        for repeat in range(2)
    ]  # fmt: skip
    run = run_of(tmp_path, *found, backends=[{"name": "tetris", "options": {}}], reference="tetris")
    one = {name: 2 * value for name, value in FIRST.items()} | {
        "pass_us": 8000.0, "other_us": 1000.0, "window_us": 20_000.0,
        "worker_us": 20_000.0, "replaced": 2.0,
    }  # fmt: skip
    for row in summaries(run):
        assert row["by_stage"] == {"1": one}
    (cell,) = cells(run)
    assert cell["by_stage"] == {"1": {name: 2 * value for name, value in one.items()}}
