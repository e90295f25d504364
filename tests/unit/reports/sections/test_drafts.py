"""The section "drafts": curves and table of trials whose counts are known by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from harness.core.nouns import REPLAYED
from reports.cells import Cell, Overview, overview
from reports.collect import Samples
from reports.figures.drafts import curve
from reports.page import write_report
from reports.sections import Section, drafts
from reports.tables import BodyCell, Table
from reports.words.drafts import drafting
from results import load
from tests.support.results.drafting_runs import (
    MODEL,
    PLAIN_MS,
    changed,
    one,
    plain,
    records,
    speculative,
    written,
)
from tests.support.results.report_pages import rows, section
from tests.support.results.report_runs import EXITS, LOADS, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drafts")


@pytest.fixture(scope="module")
def seen(folder: Path) -> Overview:
    return written(folder, records())


@pytest.fixture(scope="module")
def text(seen: Overview, folder: Path) -> str:
    return write_report(folder).read_text()


def made(seen: Overview) -> tuple[Section, Table]:
    found = drafts.section(seen, Samples())
    assert found is not None
    assert found.table is not None
    return found, found.table


def shown(seen: Overview) -> dict[tuple[str, str, str], dict[str, BodyCell]]:
    """(backend, method, workload) -> the cells of its row by heading."""
    _, table = made(seen)
    titles = [f"{c.group.title}: {c.title}" if c.group else c.title for c in drafts.COLUMNS]
    return {
        (row.variant.backend, row.variant.options["method"], row.workload or ""): dict(
            zip(titles, row.cells, strict=True)
        )
        for row in table.rows
    }


def test_a_curve_is_the_product_over_the_positions(seen: Overview) -> None:
    """Not accepted at I over all verifications, which would count as rejected what was never
    judged: 3/4, 2/4 and 1/4 here."""
    points = curve(one(seen).cell)
    assert [point.position for point in points] == [0, 1, 2, 3]
    assert [point.share for point in points] == pytest.approx([1, 3 / 4, 1 / 2, 1 / 2])
    assert [point.judged for point in points[1:]] == [64, 48, 16]


@pytest.mark.parametrize(
    ("counts", "shares"),
    [
        (None, []),
        ({}, []),
        ({"1": {"judged": 0.0, "accepted": 0.0}}, []),
        ({"1": {"judged": 9.0, "accepted": 0.0}}, [1.0, 0.0]),
        ({"1": {"judged": 4.0, "accepted": 2.0}, "3": {"judged": 1.0, "accepted": 1.0}}, [1, 0.5]),
    ],
)
def test_a_curve_ends_where_nothing_was_judged(seen: Overview, counts: Any, shares: Any) -> None:
    found = curve(changed(one(seen).cell, drafts_by_position=counts))
    assert [point.share for point in found] == shares


def test_only_variants_that_draft_appear(seen: Overview, text: str) -> None:
    names = {"speculative", "vllm-speculative"}
    assert {d.cell.variant.backend for d in drafting(seen)} == names
    drawn = rows(text, "drafts")
    assert len(drawn) == 6
    assert not [row for row in drawn if 'class="name">vllm<' in row]
    without = [c for c in seen.cells if c.variant.backend in PLAIN_MS]
    assert drafts.section(dataclasses.replace(seen, cells=tuple(without)), Samples()) is None


def test_a_variant_that_found_nothing_to_draft_is_told_of(tmp_path: Path) -> None:
    none = {"steps": 4.0, "step_tokens": 9.0, "drafted": 0.0, "accepted": 0.0}
    found = [
        plain("autoregressive", "gsm8k", 0),
        speculative("gsm8k", 0, MODEL),
        plain("autoregressive", "xsum", 0),
        speculative("xsum", 0, MODEL, counts=none),
    ]
    row = shown(written(tmp_path, found))["speculative", "draft_model", "xsum"]
    assert row["A verification: drafts"].text == "0"
    assert row["A verification: accepted"].undefined == "nothing was drafted here"


def test_the_numbers_are_those_of_the_counts(seen: Overview) -> None:
    row = shown(seen)["speculative", "draft_model", "gsm8k"]
    assert {title: cell.text for title, cell in row.items()} == {
        "Workload": "gsm8k (bundled)",
        "Load": "closed c=1",
        "A verification: drafts": "3.00",
        "A verification: accepted": "50.0",
        "A verification: tokens": "2.25",
        "Time of a step: drafts": "40.0",
        "Time of a step: verification": "1.20",
        "Time of a step: all": "2.00",
        "Speed-up over plain: if free": "2.25",
        "Speed-up over plain: predicted": "1.12",
        "Speed-up over plain: measured": "1.12",
        "Speed-up over plain: over": "autoregressive",
    }
    found = one(seen)
    assert found.predicted == pytest.approx(1.125)
    assert found.measured == pytest.approx(1.125)
    assert row["Speed-up over plain: measured"].small == "[1.12, 1.12]"


def test_each_engine_has_its_own_plain_decoding(seen: Overview) -> None:
    """Against autoregressive, which is four times as fast as vllm here, it would be 0.225."""
    found = one(seen, backend="vllm-speculative")
    assert found.plain is not None
    assert found.plain.variant.backend == "vllm"
    assert found.step_ratio == pytest.approx(2.5)
    assert found.verification_ratio == pytest.approx(1.875)
    assert found.predicted == pytest.approx(0.9)
    assert found.measured == pytest.approx(0.9)


def test_drafts_of_the_model_s_own_layers_are_not_told_apart(seen: Overview) -> None:
    row = shown(seen)["speculative", "layerskip", "gsm8k"]
    for title in ("Time of a step: drafts", "Time of a step: verification"):
        assert row[title].undefined == "drafts are made in the model's own passes"
    assert row["Time of a step: all"].text == "1.50"
    assert row["Speed-up over plain: predicted"].text == "1.50"


def test_steps_that_plain_decoding_does_not_tell_leave_the_measured_speed(tmp_path: Path) -> None:
    run = write_run(tmp_path, engines=EXITS[:2], loads=LOADS[:1], workloads=["gsm8k"], requests=12)
    (found,) = drafting(overview(load(run)))
    assert found.predicted is None
    assert found.measured
    assert found.measured == found.cell.value("speedup_native")
    (row,) = rows(write_report(run).read_text(), "drafts")
    assert row.count("one of the two does not tell of its steps") == 3
    assert f'data-sort="{found.measured!r}"' in row


def test_without_plain_decoding_there_is_a_dash(seen: Overview, text: str) -> None:
    row = shown(seen)["speculative", "draft_model", "xsum"]
    why = "there is no one cell of autoregressive, plain decoding on this engine, to compare with"
    against = [
        *(f"Time of a step: {name}" for name in ("verification", "all")),
        *(f"Speed-up over plain: {name}" for name in ("predicted", "measured", "over")),
    ]
    assert {title for title, cell in row.items() if cell.undefined == why} == set(against)
    assert row["A verification: tokens"].text == "2.25"
    # of two variants of our engine, five cells each; vllm decodes plainly on both workloads
    assert section(text, "drafts").count(f'title="{why}">–</span>') == 2 * len(against)
    assert shown(seen)["vllm-speculative", "draft_model", "xsum"]["Time of a step: all"].text


@pytest.mark.parametrize(
    ("replaying", "why"), [("speculative", "does not replay"), ("autoregressive", "replays")]
)
def test_plain_decoding_that_decided_otherwise_is_said_to_be_there(
    replaying: str, why: str, tmp_path: Path
) -> None:
    found = [
        dataclasses.replace(r, backend=dataclasses.replace(r.backend, provenance=REPLAYED))
        if r.trial.backend == replaying and r.backend is not None
        else r
        for r in records()
    ]
    row = shown(written(tmp_path, found))["speculative", "draft_model", "gsm8k"]
    undefined = row["Speed-up over plain: predicted"].undefined
    assert undefined == f"autoregressive {why}, and replays are compared with replays alone"


def test_pairs_need_the_reference_on_vllm_s_engine(tmp_path: Path) -> None:
    own = written(tmp_path, records(), reference="autoregressive")
    row = shown(own)["vllm-speculative", "draft_model", "gsm8k"]
    assert row["Speed-up over plain: predicted"].text == "0.90"
    why = "requests are paired with the reference, which vllm is not"
    assert row["Speed-up over plain: measured"].undefined == why
    assert one(own).measured == pytest.approx(1.125)


def test_numbers_that_are_not_valid_are_marked(seen: Overview) -> None:
    def marked(doubted: Cell, **changes: Any) -> set[str]:
        new = dataclasses.replace(doubted, **changes)
        cells = tuple(new if cell is doubted else cell for cell in seen.cells)
        other = dataclasses.replace(seen, cells=cells)
        row = shown(other)["speculative", "draft_model", "gsm8k"]
        faded = [row.variant.index for row in made(other)[1].rows if "invalid" in row.css]
        drafts_itself = doubted is found.cell
        assert faded == [doubted.variant.index] * (drafts_itself and not new.stands_alone)
        return {title.partition(": ")[2] for title, cell in row.items() if "struck" in cell.css}

    found = one(seen)
    assert found.plain is not None
    times = {"verification", "all", "predicted"}
    assert marked(found.cell, valid_trials=0) == times | {"measured"}
    assert marked(found.plain, valid_trials=0) == times, "its own number stands as it was judged"
    void = {**found.cell.metrics, "void_metrics": ["speedup_native"]}
    assert marked(found.cell, valid_trials=0, metrics=void) == {"measured"}, "pairs alone are void"


def test_the_curves_are_drawn_by_workload_and_load(text: str) -> None:
    drawn = section(text, "drafts")
    assert drawn.count("<figure") == 2
    title = "Share of verifications whose first drafts all stand: gsm8k, closed c=1"
    assert title in drawn
    note = "gsm8k, closed c=1: first 1 75.0% (64 judged), first 2 50.0% (48 judged), first 3 50.0%"
    assert note in drawn


def test_without_positions_there_is_a_table_alone(seen: Overview) -> None:
    cells = tuple(changed(cell, drafts_by_position=None) for cell in seen.cells)
    found, table = made(dataclasses.replace(seen, cells=cells))
    assert not found.groups
    assert len(table.rows) == 6
    assert "curve" not in found.note
