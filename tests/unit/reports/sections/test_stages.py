"""The section "stages": a pipeline whose counts are known by hand, beside its baselines."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.core.nouns import Load, Slo, TrialRecord, Workload
from reports.cells import Overview, overview
from reports.collect import Samples
from reports.page import write_report
from reports.sections import stages
from reports.tables import BodyCell
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.report_pages import rows, section
from tests.support.results.stored_runs import run_of

REQUESTS, REPEATS = 24, 3
STEP_MS = {"autoregressive": 10.0, "own-early-exit": 4.0, "tetris": 5.0}
COUNTS = {
    "stage_passes_1": 4.0, "stage_rows_1": 10.0, "stage_layers_1": 20.0, "stage_left_1": 8.0,
    "stage_pass_us_1": 10.0, "stage_other_us_1": 5.0,
    "stage_passes_2": 2.0, "stage_rows_2": 2.0, "stage_layers_2": 12.0, "stage_left_2": 2.0,
    "stage_filled_2": 7.0, "stage_pass_us_2": 30.0, "stage_other_us_2": 1.0,
}  # fmt: skip
"""Of a request; all of them are under way at once, 50 ms long."""
WINDOW_US = 55_000.0


def of(name: str, workload: str, repeat: int) -> TrialRecord:
    options: dict[str, Any] = {"kernels": "native"}
    ends = [10 + STEP_MS[name] * place for place in range(10)]
    counts = COUNTS if name == "tetris" else {}
    data = Workload(workload, checksum=f"sum-{workload}")
    load = Load("closed", concurrency=REQUESTS)
    return record(
        trial(name, options=options, workload=data, load=load, repeat=repeat),
        [generation(f"r{i}", ends, telemetry=counts) for i in range(REQUESTS)],
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stages")


@pytest.fixture(scope="module")
def seen(folder: Path) -> Overview:
    found = [of(n, w, r) for r in range(REPEATS) for w in ("gsm8k", "xsum") for n in STEP_MS]
    listed = [{"name": name, "options": {"kernels": "native"}} for name in STEP_MS]
    return overview(run_of(folder, *found, backends=listed, reference="autoregressive"))


def shown(seen: Overview) -> dict[tuple[str, str], dict[str, BodyCell]]:
    """(workload, stage) -> the cells of its row by heading."""
    made = stages.section(seen, Samples())
    assert made is not None
    assert made.table is not None
    titles = [f"{c.group.title}: {c.title}" if c.group else c.title for c in stages.COLUMNS]
    found = [dict(zip(titles, row.cells, strict=True)) for row in made.table.rows]
    return {
        (row["Workload"].text.removesuffix(" (bundled)"), row["Stage"].text): row for row in found
    }


def test_a_row_per_stage_and_its_numbers(seen: Overview) -> None:
    found = shown(seen)
    assert sorted(found) == [(w, f"{n} of 2") for w in ("gsm8k", "xsum") for n in (1, 2)]
    numbers = {
        stage: {t: c.text for t, c in found["gsm8k", f"{stage} of 2"].items()} for stage in (1, 2)
    }
    assert {title: numbers[1][title] for title in list(numbers[1])[3:]} == {
        "layers": "2.00",
        "Tokens after the first, or labels: arrive": "100",
        "Tokens after the first, or labels: leave": "80.0",
        "Tokens after the first, or labels: filled": "0",
        "A pass: rows": "2.50",
        "A pass: time": "0.00250",
        "Share of the time: passes": "0.4",
        "Share of the time: prompts": "0.2",
        "Share of the time: idle": "99.3",
    }
    tokens = "Tokens after the first, or labels"
    assert [numbers[2][f"{tokens}: {name}"] for name in ("arrive", "leave")] == ["20.0", "100"]
    assert numbers[2]["Tokens after the first, or labels: filled"] == "70.0"
    assert numbers[2]["layers"] == "6.00"
    busy = found["gsm8k", "2 of 2"]["Share of the time: idle"].sort
    assert 1 - float(busy) == pytest.approx(REQUESTS * 31 / WINDOW_US)


def test_the_sentence_names_what_bounds_and_the_baselines(seen: Overview) -> None:
    made = stages.section(seen, Samples())
    assert made is not None
    (text,) = made.words
    assert "the busiest stage of tetris (2 of 2, gsm8k) works 1.4% of the time" in text
    assert "0.84 times own-early-exit's on 2 of 2 workloads" in text
    assert "1.82 times autoregressive's on 2 of 2 workloads" in text


def test_a_pipeline_that_verifies_is_held_to_what_verifies_too(seen: Overview) -> None:
    made = {"tetris": {"verify": True}, "own-early-exit": {}, "autoregressive": {}}
    cells = []
    for cell in seen.cells:
        name, told = cell.variant.backend, made[cell.variant.backend]
        other: dict[str, Any] = {
            "backend": name.replace("own-early-exit", "adadecode"),
            "options": told,
        }
        cells.append(dataclasses.replace(cell, variant=dataclasses.replace(cell.variant, **other)))
    found = stages.section(dataclasses.replace(seen, cells=tuple(cells)), Samples())
    assert found is not None
    (text,) = found.words
    assert found.table is not None
    titles = [c.title for c in stages.COLUMNS]
    pairs = [zip(titles, row.cells, strict=True) for row in found.table.rows]
    assert {c.text for row in pairs for name, c in row if name in ("arrive", "leave")} == {""}
    assert "0.84 times adadecode's on 2 of 2 workloads" in text
    assert "1.82 times autoregressive's" in text


def test_what_does_not_hold_is_not_said(seen: Overview) -> None:
    def words(*doubted: str) -> str:
        cells = tuple(
            dataclasses.replace(cell, valid_trials=0) if cell.variant.backend in doubted else cell
            for cell in seen.cells
        )
        made = stages.section(dataclasses.replace(seen, cells=cells), Samples())
        assert made is not None
        assert made.table is not None
        faded = {row.css for row in made.table.rows if "invalid" in row.css}
        assert bool(faded) == ("tetris" in doubted)
        return " ".join(made.words)

    assert "own-early-exit" not in words("own-early-exit")
    assert "autoregressive" in words("own-early-exit")
    assert words("own-early-exit", "autoregressive").endswith("% of the time.")
    assert words("tetris") == ""


def test_throughput_of_an_open_load_is_not_compared(seen: Overview) -> None:
    cells = tuple(dataclasses.replace(cell, load_kind="poisson") for cell in seen.cells)
    made = stages.section(dataclasses.replace(seen, cells=cells), Samples())
    assert made is not None
    (text,) = made.words
    assert text.endswith("% of the time.")


def test_goodput_over_the_baselines_is_told_where_there_is_an_objective(seen: Overview) -> None:
    rates = {"tetris": 3.0, "own-early-exit": 4.0, "autoregressive": 2.0}
    cells = tuple(
        dataclasses.replace(
            cell,
            slo=Slo(e2e_ms=100),
            load_kind="poisson",
            metrics={**cell.metrics, "goodput_req_per_s": rates[cell.variant.backend]},
        )
        for cell in seen.cells
    )
    made = stages.section(dataclasses.replace(seen, cells=cells), Samples())
    assert made is not None
    (text,) = made.words
    assert text.endswith(
        "Requests per second that meet the objective: 0.75 times own-early-exit's on 2 of 2 "
        "workloads; 1.50 times autoregressive's on 2 of 2 workloads."
    )


def test_labels_are_counted_where_there_are_no_tokens(seen: Overview) -> None:
    rates = {"tetris": 3.0, "own-early-exit": 4.0, "autoregressive": 2.0}
    cells = tuple(
        dataclasses.replace(
            cell,
            metrics={
                **cell.metrics,
                "output_tok_per_s": 0.0,
                "request_per_s": rates[cell.variant.backend],
            },
        )
        for cell in seen.cells
    )
    made = stages.section(dataclasses.replace(seen, cells=cells), Samples())
    assert made is not None
    assert "Labels per second: 0.75 times own-early-exit's" in made.words[0]


def test_a_pipeline_that_met_nothing_is_in_the_range(seen: Overview) -> None:
    """Of two workloads the worse one is told too."""
    rates = {"tetris": {"gsm8k": 3.0, "xsum": 0.0}}
    cells = tuple(
        dataclasses.replace(
            cell,
            slo=Slo(e2e_ms=100),
            metrics={
                **cell.metrics,
                "goodput_req_per_s": rates.get(cell.variant.backend, {}).get(cell.workload, 2.0),
            },
        )
        for cell in seen.cells
    )
    words = stages.section(dataclasses.replace(seen, cells=cells), Samples())
    assert words is not None
    told = next(text for text in words.words if "meet the objective" in text)
    assert "0 to 1.50 times own-early-exit's on 2 of 2 workloads" in told


def test_a_workload_that_the_load_does_not_fill_compares_no_goodput(
    seen: Overview, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rate is that of the arrivals."""
    cells = tuple(
        dataclasses.replace(
            cell,
            slo=Slo(e2e_ms=100),
            metrics={
                **cell.metrics,
                "goodput_req_per_s": 3.0 if cell.variant.backend == "tetris" else 2.0,
            },
        )
        for cell in seen.cells
    )
    monkeypatch.setattr(
        "reports.words.stages.unfilled",
        lambda cells, _: [SimpleNamespace(cell=one) for one in cells if one.workload == "xsum"],
    )
    made = stages.section(dataclasses.replace(seen, cells=cells), Samples())
    assert made is not None
    told = next(text for text in made.words if "meet the objective" in text)
    assert "1.50 times own-early-exit's on 1 of 1 workloads" in told


def test_what_does_not_hold_is_no_finding(seen: Overview) -> None:
    cells = tuple(dataclasses.replace(cell, valid_trials=0, left_out=0) for cell in seen.cells)
    made = stages.section(dataclasses.replace(seen, cells=cells), Samples())
    assert made is not None
    assert made.words == []
    assert made.finding == "No cell holds."


def test_a_stage_that_nobody_reached_has_dashes(seen: Overview) -> None:
    nobody = dict.fromkeys(("passes", "rows", "layers", "left", "filled", "pass_us"), 0.0)
    cells = tuple(
        dataclasses.replace(
            cell,
            metrics={**cell.metrics, "by_stage": {**told, "2": {**told["2"], **nobody}}},
        )
        if (told := cell.metrics.get("by_stage"))
        else cell
        for cell in seen.cells
    )
    row = shown(dataclasses.replace(seen, cells=cells))["gsm8k", "2 of 2"]
    assert row["A pass: time"].undefined == "nobody came as far"
    assert row["Tokens after the first, or labels: arrive"].text == "0"


def test_the_page_has_the_section_and_a_place_for_each_row(seen: Overview, folder: Path) -> None:
    text = write_report(folder).read_text()
    assert section(text, "stages").count("<tr class") == len(rows(text, "stages")) == 4
    assert "stage_1" in section(text, "stages")
    assert section(text, "stages").count('id="') == len(
        set(section(text, "stages").split('id="')[1:])
    )


def test_without_a_pipeline_there_is_none(seen: Overview) -> None:
    others = tuple(cell for cell in seen.cells if cell.variant.backend != "tetris")
    assert stages.section(dataclasses.replace(seen, cells=others), Samples()) is None


@pytest.mark.parametrize(
    ("died", "words"),
    [
        (None, ""),  # as in stores of before
        (0.0, ""),
        (1.0, "1 process died or hung there and was replaced: what ran again is in its times."),
        (3.0, "3 processes died or hung there and were replaced: what ran again is in its times."),
    ],
)
def test_processes_that_were_replaced_are_told(
    seen: Overview, died: float | None, words: str
) -> None:
    cells = []
    for cell in seen.cells:
        by_stage = cell.metrics.get("by_stage")
        if by_stage and cell.workload.startswith("xsum"):
            second = {name: count for name, count in by_stage["2"].items() if name != "replaced"}
            if died is not None:
                second["replaced"] = died
            changed = {**by_stage, "2": second}
            cell = dataclasses.replace(cell, metrics={**cell.metrics, "by_stage": changed})
        cells.append(cell)
    made = stages.section(dataclasses.replace(seen, cells=tuple(cells)), Samples())
    assert made is not None
    (text,) = made.words
    assert words in text
    assert ("replaced" in text) == bool(died)
