"""The section "survival": a pipeline whose tokens leave as they are told to."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from harness.core.nouns import Load, TrialRecord, Workload
from reports.cells import Overview, overview
from reports.collect import Samples, collect
from reports.page import write_report
from reports.sections.exits import survival
from reports.sections.exits.forecasts import NextWindow
from results import Run
from results.metrics.arrays import Floats
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.report_pages import rows, section
from tests.support.results.stored_runs import run_of

ASKED = {"checks_layer_2": 1.0, "checks_layer_4": 1.0, "layers_run": 4.0}
LAYERS = [2] * 10 + [2, 6] * 5 + [6] * 10 + [2] * 10
"""Of a request's tokens: four windows of ten, in which none, half, all and none go on."""


def next_window(history: Floats) -> Floats:
    return np.asarray(history[-1] + 0.1)


HALFWAY = NextWindow(next_window, 2, "more")


def of(name: str, workload: str) -> TrialRecord:
    stages = {"stage_rows_1": 2.0, "stage_passes_1": 1.0} if name == "tetris" else {}
    found = generation("r", [0, *(5.0 + 10 * n for n in range(40)), 400], telemetry=ASKED | stages)
    found = dataclasses.replace(found, token_layers=[0, *LAYERS])
    data = Workload(workload, checksum=f"sum-{workload}")
    return record(trial(name, workload=data, load=Load("closed", concurrency=1)), [found])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    names = ("own-early-exit", "tetris")
    found = [of(name, workload) for workload in ("gsm8k", "xsum") for name in names]
    listed = [{"name": name, "options": {}} for name in names]
    return run_of(
        tmp_path_factory.mktemp("survival"), *found, backends=listed, reference="own-early-exit"
    )


@pytest.fixture(scope="module")
def seen(run: Run) -> Overview:
    return overview(run)


@pytest.fixture(scope="module")
def samples(run: Run, seen: Overview) -> Samples:
    return collect(run, seen, next_window=HALFWAY, window_s=0.1)


def test_a_row_per_ramp_of_the_pipeline_and_its_numbers(seen: Overview, samples: Samples) -> None:
    made = survival.section(seen, samples)
    assert made is not None
    assert made.table is not None
    titles = [column.title for column in survival.COLUMNS]
    assert [row.variant.backend for row in made.table.rows] == ["tetris"] * 4
    first = {title: cell.text for title, cell in zip(titles, made.table.rows[0].cells, strict=True)}
    assert {title: first[title] for title in titles[2:]} == {
        "Ramp": "behind 2",
        "number": "4",
        "length": "0.100",
        "tokens": "10.0",
        "mean": "37.5",
        "least": "0",
        "most": "100",
        # 0, 0.5, 1, 0: said are 0.6 and 1.1 for the last two
        "forecast": "75.0",
        "last value": "75.0",
        "counting": "0.0",
    }
    (words,) = made.words
    assert words.startswith("Under closed c=1 forecasts of tetris's survival were off by 75.0")
    two = "2 windows that had enough before them"
    assert words.endswith(f"That rests on gsm8k ({two}), xsum ({two}).")
    assert made.finding == (
        "37.5% of what reaches a ramp goes on: 8 windows of 0.100 s, on gsm8k, xsum."
    )


def test_shares_of_cells_that_do_not_hold_are_no_finding(seen: Overview, samples: Samples) -> None:
    def found(*void: str) -> str:
        cells = tuple(
            dataclasses.replace(cell, valid_trials=0, left_out=0) if cell.workload in void else cell
            for cell in seen.cells
        )
        own = dict(zip(seen.cells, cells, strict=True))
        survived = {own[cell]: told for cell, told in samples.survival.items()}
        made = survival.section(
            dataclasses.replace(seen, cells=cells),
            dataclasses.replace(samples, survival=survived),
        )
        assert made is not None
        assert made.groups
        return made.finding

    assert found("xsum").endswith("4 windows of 0.100 s, on gsm8k.")
    assert found("gsm8k", "xsum") == "No cell holds."


def test_what_rests_on_one_workload_says_so(seen: Overview, samples: Samples) -> None:
    short = {
        cell: dataclasses.replace(
            found, counted=found.counted[:2], alive=found.alive[:2], begins_s=found.begins_s[:2]
        )
        for cell, found in samples.survival.items()
        if cell.workload == "xsum"
    }
    fewer = dataclasses.replace(samples, survival=samples.survival | short)
    made = survival.section(seen, fewer)
    assert made is not None
    (words,) = made.words
    assert words.endswith(
        "That rests on gsm8k (2 windows that had enough before them); the other 1 workload had too "
        "few windows."
    )


def test_a_panel_for_each_workload_of_the_load(seen: Overview, samples: Samples) -> None:
    made = survival.section(seen, samples)
    assert made is not None
    (group,) = made.groups
    assert [panel.workload for panel in group.panels] == ["gsm8k", "xsum"]


def test_too_few_windows_have_no_forecast(seen: Overview, samples: Samples) -> None:
    made = survival.section(
        seen, dataclasses.replace(samples, next_window=NextWindow(next_window, 4, "more"))
    )
    assert made is not None
    assert made.table is not None
    assert made.words == []
    forecast, last, _ = made.table.rows[0].cells[-3:]
    assert forecast.undefined == "too few windows before any"
    assert last.text == "66.7"


def test_without_a_pipeline_others_are_told(seen: Overview, samples: Samples) -> None:
    cells = tuple(cell for cell in seen.cells if cell.variant.backend != "tetris")
    made = survival.section(dataclasses.replace(seen, cells=cells), samples)
    assert made is not None
    assert made.table is not None
    assert {row.variant.backend for row in made.table.rows} == {"own-early-exit"}
    assert survival.section(dataclasses.replace(seen, cells=()), samples) is None


def test_the_page_has_the_section(run: Run) -> None:
    folder: Path = run.path
    text = write_report(folder, next_window=HALFWAY, window_s=0.1).read_text()
    assert len(rows(text, "survival")) == 4
    assert section(text, "survival").count("<figure") == 2
    assert 'id="survival"' not in write_report(folder).read_text()
