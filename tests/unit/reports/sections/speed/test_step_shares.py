"""Shares of a step: they add up, and what is not valid is drawn faint and counted nowhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from reports.cells import Cell, overview
from reports.collect import Samples
from reports.figures.sizes import SHADES, step_parts
from reports.sections import Section
from reports.sections.speed import steps
from results import load
from tests.support.results.report_runs import ENGINES, LOADS, write_run

TOLD: dict[str, Any] = {"step_s": 0.01, "floor_share": 0.3, "overhead_share": 0.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(
        tmp_path_factory.mktemp("steps"), engines=ENGINES[:3], workloads=["gsm8k"], requests=8,
        loads=LOADS[:1],
    )  # fmt: skip


def cells(folder: Path, *, valid: int, **told: float | None) -> list[Cell]:
    """Three of which the first `valid` may be believed."""
    return [
        dataclasses.replace(
            cell,
            valid_trials=cell.trials * (place < valid),
            metrics={**cell.metrics, **TOLD, **told},
        )
        for place, cell in enumerate(overview(load(folder)).cells)
    ]


def made(folder: Path, own: list[Cell]) -> Section:
    seen = dataclasses.replace(overview(load(folder)), cells=tuple(own))
    found = steps.section(seen, Samples())
    assert found is not None
    return found


def test_cells_that_are_not_valid_are_not_counted(folder: Path) -> None:
    found = made(folder, cells(folder, valid=2))
    assert found.finding == (
        "A step takes 10.0 ms; over half of it lies above its floor in 2 of 2 valid cells."
    )
    assert found.words[0].startswith(
        "In 2 of 2 valid cells over half of a step lies above its floor"
    )
    none = made(folder, cells(folder, valid=0))
    assert (none.finding, none.words) == ("No cell holds.", [])


def test_what_is_not_valid_is_faint(folder: Path) -> None:
    axes = Figure(figsize=(4, 2)).subplots()
    step_parts(axes, [(cell, steps.parts(cell)) for cell in cells(folder, valid=1)])
    alphas = [bar.get_alpha() for bar in axes.patches]
    assert alphas[:3] == list(SHADES)
    assert alphas[3:6] == [pytest.approx(shade * 0.35) for shade in SHADES]
    notes = [note for text in axes.texts if (note := text.get_gid())]
    assert [note.endswith(", not valid") for note in notes] == [False, True, True]


def test_the_shares_of_a_row_add_up(folder: Path) -> None:
    """Of a step that took less than its floor should, the engine has the rest."""
    table = made(folder, cells(folder, valid=3, floor_share=0.98, overhead_share=0.05)).table
    assert table is not None
    shares = [float(cell.text) for cell in table.rows[0].cells[4:7]]
    assert shares == [98.0, 0.0, 2.0]


def test_a_draft_models_passes_are_not_the_models(folder: Path) -> None:
    """They were in the column of the model's passes beyond the floor."""
    own = cells(folder, valid=3, floor_share=0.2, overhead_share=0.1, draft_share=0.6)
    table = made(folder, [own[0], *cells(folder, valid=3)[1:]]).table
    assert table is not None
    assert [head.title for head in table.subheads] == ["floor", "passes", "drafts", "engine"]
    drafted, plain, _ = ([cell.text for cell in row.cells[4:8]] for row in table.rows)
    assert drafted == ["20.0", "10.0", "60.0", "10.0"]
    assert plain == ["30.0", "50.0", "", "20.0"]
    capped = cells(folder, valid=3, floor_share=0.2, overhead_share=0.7, draft_share=0.6)
    assert steps.drafts(capped[0]) == pytest.approx(0.1)


def test_without_drafts_there_is_no_column_of_them(folder: Path) -> None:
    table = made(folder, cells(folder, valid=3)).table
    assert table is not None
    assert "drafts" not in [head.title for head in table.subheads]
