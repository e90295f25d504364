"""What would settle a cell whose interval holds 1, in the table and above it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from reports.cells import Cell, overview
from reports.collect import collect
from reports.figures import throughput
from reports.page import write_report
from reports.sections import results
from reports.sections.exits import gains
from reports.words.doubts.doubt import against, remedy, sentences
from results import load
from tests.support.results.report_runs import LOADS, MadeUpBackend, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    engines = (MadeUpBackend("vllm", 0.010), MadeUpBackend("equal", 0.010))
    options: dict[str, Any] = {"workloads": ["gsm8k"], "loads": LOADS[:1]}
    return write_run(
        tmp_path_factory.mktemp("doubt"), engines=engines, repeats=4, requests=12, **options
    )


@pytest.fixture
def cell(folder: Path) -> Cell:
    return next(c for c in overview(load(folder)).cells if not c.variant.is_reference)


def like(cell: Cell, **metrics: Any) -> Cell:
    return replace(cell, metrics={**cell.metrics, **metrics})


DOUBTFUL: dict[str, Any] = {
    "speedup": 1.05,
    "speedup_low": 0.95,
    "speedup_high": 1.16,
    "speedup_repeats": 4,
    "speedup_more_repeats": 3,
}


def test_a_doubtful_cell_says_how_many_repeats_would_tell(cell: Cell) -> None:
    doubtful = like(cell, **DOUBTFUL)
    assert remedy(doubtful) == "3 more repeats would tell"
    assert remedy(like(doubtful, speedup_more_repeats=1)) == "1 more repeat would tell"
    assert remedy(like(doubtful, speedup_more_repeats=None)).startswith("no difference to be told")
    lone = like(doubtful, speedup_more_repeats=None, speedup_repeats=1)
    assert remedy(lone) == "repeat it to tell"


def test_two_remarks_beside_a_speed_up_are_apart(cell: Cell) -> None:
    """It read "overhead-bound 11 more repeats would tell"."""
    doubtful = like(cell, **DOUBTFUL, speedup_matched=1.25)
    column = next(results._numbers("", [doubtful], []))
    assert column.small(doubtful) == (
        "[0.95, 1.16] at equal lengths 1.25; overhead-bound; 3 more repeats would tell"
    )
    assert column.small(like(doubtful, speedup_low=1.01)).endswith("] at equal lengths 1.25")


def test_a_settled_or_unsound_cell_says_nothing(cell: Cell) -> None:
    doubtful = like(cell, **DOUBTFUL)
    assert remedy(like(doubtful, speedup_low=1.01)) == ""
    assert remedy(like(doubtful, speedup_high=0.99)) == ""
    assert remedy(like(doubtful, speedup_low=None, speedup_high=None)) == ""
    assert remedy(like(doubtful, void_metrics=["speedup"])) == ""
    assert sentences([like(doubtful, speedup_low=1.01)]) == []


def test_all_doubtful_cells_in_one_sentence(cell: Cell) -> None:
    doubtful = like(cell, **DOUBTFUL)
    others = [like(doubtful, speedup_more_repeats=n) for n in (9, None)]
    settled = like(doubtful, speedup_low=1.01)
    void = like(settled, void_metrics=("speedup", "speedup_low", "speedup_high"))
    (text,) = sentences([doubtful, *others, settled, void])
    assert text.startswith("In 3 of 4 valid cells the interval of the speed-up over ")
    assert "over the reference holds 1" in text
    assert "3 to 9 more repeats would settle 2 of them in 4 of 5 cases; in the other 1" in text
    (text,) = sentences([like(doubtful, speedup_more_repeats=1)])
    assert text.endswith("1 more repeat would settle them in 4 of 5 cases.")
    (text,) = sentences([like(doubtful, speedup_more_repeats=None)])
    assert text.endswith("More repeats of the same requests would not change that.")


def test_the_page_says_it(folder: Path) -> None:
    text = write_report(folder).read_text()
    assert "the interval of the speed-up over vllm holds 1: no difference is shown there" in text


UNEQUAL_WORK = ("throughput_ratio", "goodput_req_per_s", "e2e_s_p50")


@pytest.fixture
def longer(cell: Cell) -> Cell:
    """A valid cell whose answers have other lengths than the reference's."""
    told = {"length-mismatch": (4, "length-mismatch: 30% longer")}
    return replace(like(cell, void_metrics=list(UNEQUAL_WORK)), reasons=told)


def test_a_valid_cell_says_that_lengths_void_a_number(longer: Cell) -> None:
    assert longer.valid
    for metric in UNEQUAL_WORK:
        assert against(longer, metric) == "unequal lengths"
    assert against(longer, "output_tok_per_s", "tpot_s_p50") == ""
    assert against(longer, "tpot_s_p50", "throughput_ratio") == "unequal lengths"


def test_lengths_are_not_blamed_for_what_other_reasons_void(longer: Cell) -> None:
    both = like(longer, void_metrics=[*UNEQUAL_WORK, "speedup"])
    assert against(both, "speedup") == against(both, "speedup", "e2e_s_p50") == "not valid"
    noisy = replace(like(longer, void_metrics=["output_tok_per_s", *UNEQUAL_WORK]), valid_trials=0)
    assert against(noisy, "goodput_req_per_s") == "not valid"
    assert against(replace(longer, reasons={}), "e2e_s_p50") == "not valid"


def test_why_stands_where_the_number_is_struck(folder: Path, longer: Cell) -> None:
    run = load(folder)
    seen = overview(run)
    cells = tuple(longer if c.keys == longer.keys else c for c in seen.cells)
    changed = replace(seen, cells=cells)
    table = results.section(changed, collect(run, seen)).table
    assert table is not None
    row = next(r for r in table.rows if r.variant is longer.variant)
    struck = [cell for cell in row.cells if "struck" in cell.css]
    assert [cell.small for cell in struck] == ["unequal lengths"] * 2
    assert row.cells[2].text == "✓ valid"
    figure = Figure()
    throughput.bars(figure.add_subplot(), cells, gains.GAINS["Throughput"])
    assert [t.get_text() for t in figure.axes[0].texts if "≠ lengths" in t.get_text()]
