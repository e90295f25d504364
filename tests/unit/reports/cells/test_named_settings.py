"""Rows, bars and sentences of a run with several settings name theirs; of one, nothing."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import results
from reports.cells import Cell, Overview, overview
from reports.figures.axes import headings
from reports.figures.throughput import bars
from reports.page import write_report
from reports.tables import bare_scope, scope
from reports.words import facts
from reports.words.findings import place
from tests.support.results.report_pages import section
from tests.support.results.report_runs import ENGINES, LOADS, write_run

SHORT, LONG = "max new tokens 8", "max new tokens 24"


def two_lengths(folder: Path) -> Path:
    """A run whose repeats were asked for answers of different lengths."""
    made = write_run(
        folder, engines=ENGINES[:2], workloads=["gsm8k"], loads=LOADS[:1], repeats=2, requests=6
    )
    for path in (made / "trials").glob("*.json"):
        record = json.loads(path.read_text())
        record["trial"]["max_new_tokens"] = (8, 24)[record["trial"]["repeat"]]
        path.write_text(json.dumps(record))
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_lengths(tmp_path_factory.mktemp("two-lengths"))


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return html.unescape(write_report(folder).read_text())


@pytest.fixture(scope="module")
def seen(folder: Path) -> Overview:
    return overview(results.load(folder))


def plain(cell: Cell) -> Cell:
    """The same of a run with one setting."""
    return dataclasses.replace(cell, apart="")


def test_each_row_of_a_table_names_its_setting(page: str) -> None:
    own = section(page, "results")
    where = re.findall(r'data-where="([^"]*)"', own)
    assert set(where) == {f"gsm8k (bundled), {part}, closed c=1" for part in (SHORT, LONG)}
    addresses = re.findall(r' id="results\.(v\d\.gsm8k\.closed_c=1,_max_new_tokens_\d+)"', own)
    assert len(set(addresses)) == 4, "two backends with two lengths"


def test_rows_of_a_setting_stand_together(seen: Overview) -> None:
    assert [cell.variant.index for cell in seen.cells] == [0, 1, 0, 1]
    assert len({scope(cell).group for cell in seen.cells}) == 2


def test_the_filters_ask_for_the_workload_and_the_load_alone(seen: Overview) -> None:
    (choices,) = [one["choices"] for one in facts.filters(seen) if one["name"] == "workload"]
    assert choices == [("gsm8k", "gsm8k")]
    for made in (scope, bare_scope):
        found = [made(cell) for cell in seen.cells]
        assert {(row.workload, row.load) for row in found} == {("gsm8k", "closed c=1")}
        assert len({row.place for row in found}) == 4


def test_bars_stand_below_their_setting_and_have_room_for_it(seen: Overview) -> None:
    axes = Figure().subplots()
    bars(axes, seen.cells)
    texts = [text.get_text() for text in axes.texts]
    assert [one for one in texts if one.startswith("gsm8k")] == [
        f"gsm8k, {cell.apart}" for cell in seen.cells[::2]
    ]
    told = [patch.get_gid() or "" for patch in axes.patches]
    assert all(f", {cell.apart}: " in one for cell, one in zip(seen.cells, told, strict=True))
    assert headings(seen.cells) == 2
    assert headings(list(map(plain, seen.cells))) == 1


def test_bars_of_one_workload_are_headed_where_it_has_two_settings(page: str) -> None:
    drawn = section(page, "throughput")
    assert all(f">gsm8k, {part}<" in drawn for part in (SHORT, LONG))


def test_a_sentence_names_the_setting_of_its_cell(page: str, seen: Overview) -> None:
    for cell in seen.cells:
        assert place(cell).endswith(f" on gsm8k, closed c=1, {cell.apart}")
    assert place(plain(seen.cells[0])).endswith(" on gsm8k, closed c=1")
    told = re.findall(r"Output tokens per second:[^<]*", section(page, "throughput"))[0]
    assert len(re.findall(r"closed c=1, max new tokens (?:8|24)\)", told)) == 2


def test_the_page_says_that_rows_name_their_settings(page: str) -> None:
    assert "rows for one workload and load, which then name their settings." in page
