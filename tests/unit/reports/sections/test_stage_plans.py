"""What the section "stages" tells of plans, from a trial whose counts are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.cells import overview
from reports.collect import Samples
from reports.sections import stages
from reports.sections.stage_plans import planned
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of

NAME = "tetris-classifier"
STAGE = {"stage_passes_1": 2.0, "stage_rows_1": 4.0, "stage_pass_us_1": 9.0, "stage_left_1": 4.0}
FIRST = {"plan_at_ms_1": 0.0, "plan_left_out_1": 0.0, "plan_workers_1_1": 2.0}
FIRST |= {"plan_workers_1_8": 1.0}
SECOND = {"plan_at_ms_2": 2500.0, "plan_left_out_2": 0.0, "plan_workers_2_3": 1.0}
SECOND |= {"plan_workers_2_8": 2.0}
THIRD = {"plan_at_ms_3": 4000.0, "plan_left_out_3": 1.0, "plan_workers_3_8": 2.0}
WINDOWS = {
    "window_inputs_1": 10.0, "window_alive_1_1": 5.0,
    "window_inputs_2": 10.0, "window_alive_2_1": 8.0, "window_forecast_2_1": 0.5,
}  # fmt: skip


def said(folder: Path, counts: dict[str, float]) -> list[str]:
    made = record(
        trial(NAME), [generation("a", [10]), generation("b", [20], telemetry={**STAGE, **counts})]
    )
    run = run_of(folder, made, backends=[{"name": NAME, "options": {}}], reference=NAME)
    seen = overview(run)
    section = stages.section(seen, Samples())
    assert section is not None
    found = list(planned(seen))
    assert found == [text for text in section.words if text in found]
    return found


def test_plans_are_told_with_their_reasons(tmp_path: Path) -> None:
    (text,) = said(tmp_path, FIRST | SECOND | THIRD | WINDOWS)
    assert "began with layers 1 on 2, 2-8 on 1 worker; " in text
    assert (
        "at 2.50 s layers 1-3 on 1, 4-8 on 2 workers, because other shares were expected to leave"
    ) in text
    assert "at 4.00 s layers 1-8 on 2 workers, because 1 worker had become slow." in text
    assert "forecast to within 30.0 points on average of what 1 window then saw" in text
    assert "behind layer 1, forecast/measured in %: 50/80." in text


def test_a_plan_that_stayed_is_told_too(tmp_path: Path) -> None:
    (text,) = said(tmp_path, FIRST)
    assert text.endswith("no later plan was another one.")


def test_of_many_plans_the_first_and_the_last_are_told(tmp_path: Path) -> None:
    counts = dict(FIRST)
    for number in range(2, 12):
        counts[f"plan_at_ms_{number}"] = 1000.0 * number
        counts[f"plan_left_out_{number}"] = 0.0
        counts[f"plan_workers_{number}_8"] = 3.0
    (text,) = said(tmp_path, counts)
    assert text.count("because") == 5
    assert "at 2.00 s" in text
    assert "5 more plans; at 8.00 s" in text
    assert "at 11.0 s" in text


@pytest.mark.parametrize("counts", [{}, {"plan_at_ms_1": 0.0}])
def test_without_plans_nothing_is_said(tmp_path: Path, counts: dict[str, float]) -> None:
    assert said(tmp_path, counts) == []
