"""The section "published": a paper's numbers in the rows of the cells that they belong to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from reports.cells import Overview, overview
from reports.collect import Samples
from reports.page import write_report
from reports.sections import published
from results import load
from tests.support.results.report_runs import LOADS, MadeUpBackend, write_run

TABLE: dict[str, Any] = {
    "source": "a paper <3>, table 2",
    "metric": "speedup",
    "settings": ["8B", "34B"],
    "note": "measured elsewhere.",
    "rows": [
        {"backend": "quick", "options": {}, "values": {"gsm8k": [1.5, 1.2], "xsum": [None, 1.1]}},
        {"backend": "slow", "options": {"k": 2}, "values": {"gsm8k": [0.9, 1.3]}},
    ],
}
ENGINES = (
    MadeUpBackend("vllm", 0.010),
    MadeUpBackend("quick", 0.005, {"k": 1}),
    MadeUpBackend("slow", 0.012, {"k": 2}),
    MadeUpBackend("slow", 0.011, {"k": 3}),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("published")
    write_run(run, engines=ENGINES, workloads=["gsm8k", "xsum"], loads=LOADS[:1])
    content = yaml.safe_load((run / "experiment.yaml").read_text())
    (run / "experiment.yaml").write_text(yaml.safe_dump(content | {"published": TABLE}))
    return run


@pytest.fixture(scope="module")
def seen(folder: Path) -> Overview:
    return overview(load(folder))


def test_a_row_for_each_cell_that_the_paper_has_a_number_for(seen: Overview) -> None:
    made = published.section(seen, Samples())
    assert made is not None
    assert made.table is not None
    shown = {
        (row.variant.label, row.workload): [cell.text for cell in row.cells[2:]]
        for row in made.table.rows
    }
    assert list(shown) == [("quick", "gsm8k"), ("quick", "xsum"), ("slow k=2", "gsm8k")]
    assert shown["quick", "gsm8k"] == ["1.50", "1.20", "2.00"]
    assert shown["quick", "xsum"][:2] == ["", "1.10"]
    assert shown["slow k=2", "gsm8k"][:2] == ["0.90", "1.30"]


def test_the_order_of_methods_is_compared(seen: Overview) -> None:
    made = published.section(seen, Samples())
    assert made is not None
    assert made.words == [
        "The order of two methods is the one published for 8B in 1 of 1 pairs.",
        "The order of two methods is the one published for 34B in 0 of 1 pairs.",
    ]
    doubted = [
        dataclasses.replace(cell, valid_trials=0) if cell.variant.backend == "slow" else cell
        for cell in seen.cells
    ]
    unsound = published.section(dataclasses.replace(seen, cells=tuple(doubted)), Samples())
    assert unsound is not None
    assert unsound.words == []
    assert unsound.table is not None
    assert "struck" in unsound.table.rows[-1].cells[-1].css


def test_it_stands_on_the_page_escaped(folder: Path) -> None:
    page = write_report(folder).read_text()
    assert "a paper &lt;3&gt;, table 2" in page
    assert "Beside the paper" in page


def test_without_a_table_there_is_no_section(seen: Overview) -> None:
    assert published.section(dataclasses.replace(seen, published=None), Samples()) is None
    assert (
        published.section(dataclasses.replace(seen, published={**TABLE, "rows": []}), Samples())
        is None
    )
