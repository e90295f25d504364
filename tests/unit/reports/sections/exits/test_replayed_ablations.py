"""Ablations of replayed decisions: a replay promises no text, and its cost counts all the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harness.core.nouns import REPLAYED
from reports.cells import Overview, overview
from reports.collect import Samples
from reports.sections import Section
from reports.sections.exits import ablations
from results import load
from tests.support.results.report_runs import EXITS, LOADS, write_run


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Overview:
    replays = [dataclasses.replace(e, provenance=REPLAYED, lossless=False) for e in EXITS[:4]]
    folder: Path = tmp_path_factory.mktemp("replays")
    run = write_run(
        folder, engines=replays, workloads=["gsm8k"], loads=LOADS[:1], requests=12,
        reference="autoregressive",
    )  # fmt: skip
    return overview(load(run))


def made(seen: Overview) -> Section:
    found = ablations.section(seen, Samples())
    assert found is not None
    return found


def test_the_fastest_replay_is_named_with_no_word_on_its_text(seen: Overview) -> None:
    found = made(seen)
    assert found.finding.startswith("The fastest with replayed decisions: ")
    assert found.table is not None
    items = [item for row in found.table.rows for item in row.cells if "best" in item.css]
    assert [item.text in found.finding for item in items] == [True], "it is bold, too"
    assert "promises" not in found.note
    assert "†" not in found.note


def test_replays_none_of_which_is_valid(seen: Overview) -> None:
    void = tuple(dataclasses.replace(cell, valid_trials=0) for cell in seen.cells)
    found = made(dataclasses.replace(seen, cells=void)).finding
    assert found == "None of 3 cells with replayed decisions is valid."


def test_real_cells_are_judged_without_the_replays_beside_them(seen: Overview) -> None:
    real = tuple(
        dataclasses.replace(
            cell, variant=dataclasses.replace(cell.variant, is_replay=False, lossy=True)
        )
        if cell.variant.index == 1
        else cell
        for cell in seen.cells
    )
    found = made(dataclasses.replace(seen, cells=real))
    assert found.finding == "No cell promises the same text."
    assert "that promises the same text" in found.note
