"""A reader of the demo's page sees at once what becomes of its ratios on larger models."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from harness.core.nouns import REPLAYED, Model
from reports.cells import Cell, Overview, overview
from reports.collect import Samples
from reports.page import write_report
from reports.sections.speed import stored_sizes
from reports.tables import Table
from results import load
from tests.support.results.report_runs import ENGINES, LOADS, PLAIN, MadeUpBackend, write_run

ADADECODE = MadeUpBackend("adadecode", 0.004, {"gamma": 0.75})
ALL: dict[str, Any] = {
    "engines": (ENGINES[0], ENGINES[1], PLAIN, ADADECODE), "workloads": ["gsm8k"],
    "loads": LOADS[:2], "repeats": 2, "requests": 6,
}  # fmt: skip
MEASURES = ("softmax", "static")
SMALL = ALL | {"engines": ENGINES[:2], "loads": LOADS[:1]}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Overview:
    return overview(load(write_run(tmp_path_factory.mktemp("demo"), **ALL)))


@pytest.fixture
def small_record(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """Changes the metrics of the record's cells: by model, or model and backend, what they are to
    be."""
    run, stored = stored_sizes._stored(stored_sizes.REFERENCE / stored_sizes.RECORD)
    told: dict[Any, Any] = {}

    def changed(cell: Cell) -> Cell:
        own = told.get((cell.model, cell.variant.backend), {})
        metrics = {**cell.metrics, **told.get(cell.model, {}), **own}
        return dataclasses.replace(cell, metrics=metrics)

    def record(_: Path) -> tuple[Any, Overview]:
        return run, dataclasses.replace(stored, cells=tuple(map(changed, stored.cells)))

    monkeypatch.setattr(stored_sizes, "_stored", record)
    return told


def table_of(seen: Overview) -> Table:
    found = stored_sizes.section(seen, Samples())
    assert found is not None
    assert found.table is not None
    return found.table


def test_the_methods_of_a_run_of_the_demo_model_stand_on_larger_ones(demo: Overview) -> None:
    table = table_of(demo)
    own = {v.backend: v.id for v in demo.variants}
    told = [(row.load, row.variant.backend) for row in table.rows]
    assert told == [
        (load, name)
        for load in ("closed c=1", "closed c=8")
        for name in ("vllm-early-exit", "autoregressive", "adadecode")
    ]
    assert all(row.variant.id == own[row.variant.backend] for row in table.rows), "same colours"
    assert all(row.variant.provenance.startswith(REPLAYED) for row in table.rows)
    assert [(head.title, head.unit) for head in table.subheads[:3]] == [
        ("0.1b", "0.20 GB"), ("0.5b", "1.0 GB"), ("1b", "2.0 GB"),
    ]  # fmt: skip
    found = stored_sizes.section(demo, Samples())
    assert found is not None
    assert (
        "0.1b, 0.5b, 1b of random weights (prompts of gsm8k; 2 to 5 sound repeats: with 2"
        in found.note
    )
    assert "results/reference/cpu/sizes" in found.note


def test_a_method_has_each_of_its_ratios_once(demo: Overview) -> None:
    exits, plain, ada = table_of(demo).rows[:3]
    assert all(cell.text for cell in exits.cells[1:4])
    assert not any(cell.text for cell in exits.cells[4:7]), "its engine is the reference's"
    assert not any(cell.text for cell in plain.cells[1:4]), "it is plain decoding"
    assert all(cell.text for cell in plain.cells[4:7])
    assert all(cell.text and cell.small for cell in ada.cells[1:7])


def test_what_was_decided_there_stands_beside_what_is_decided_here(demo: Overview) -> None:
    index = next(v.index for v in demo.variants if v.backend == "vllm-early-exit")
    cells = [
        dataclasses.replace(c, metrics={**c.metrics, "early_exit_rate": 0.25})
        if c.variant.index == index
        else c
        for c in demo.cells
    ]
    table = table_of(dataclasses.replace(demo, cells=tuple(cells)))
    exits, plain, ada = table.rows[:3]
    there, here = (cell.text for cell in exits.cells[7:9])
    assert there.endswith("% of layers skipped")
    assert here == "25.0% of layers skipped"
    assert not any(cell.text for cell in plain.cells[7:9])
    assert ada.cells[7].text.endswith(" tokens a step")


def test_only_what_ran_here_is_told_of(tmp_path: Path) -> None:
    seen = overview(load(write_run(tmp_path, **SMALL)))
    assert {row.variant.backend for row in table_of(seen).rows} == {"vllm-early-exit"}


def test_another_method_has_another_ratio(demo: Overview) -> None:
    """The record's early exit asks how sure a head is."""

    def leaving(measure: str) -> Overview:
        cells = (
            dataclasses.replace(c, effective={**c.effective, "measure": measure})
            if c.variant.backend == "vllm-early-exit"
            else c
            for c in demo.cells
        )
        return dataclasses.replace(demo, cells=tuple(cells))

    index = next(v.index for v in demo.variants if v.backend == "vllm-early-exit")
    told = {
        m: {key[0] for key in stored_sizes.on_larger(leaving(m))} for m in ("softmax", "static")
    }
    assert index in told["softmax"]
    assert told["static"] == told["softmax"] - {index}


def test_a_ratio_that_is_not_sound_is_struck_and_not_the_one_that_is_told(
    demo: Overview, small_record: dict[Any, Any]
) -> None:
    place = next(v.index for v in demo.variants if v.backend == "adadecode"), "closed c=8"
    sound = stored_sizes.on_larger(demo)[*place, "autoregressive"]
    assert sound.model == "1b"
    small_record["1b"] = {"void_metrics": ["speedup", "speedup_native"]}
    struck = [cell for row in table_of(demo).rows for cell in row.cells if "struck" in cell.css]
    shown = [cell for row in table_of(demo).rows for cell in row.cells[3:7:3] if cell.text]
    assert struck == shown
    assert stored_sizes.on_larger(demo)[*place, "autoregressive"].model == "0.5b"


def test_what_a_choice_comes_to_on_a_larger_model_stands_beside_it(
    tmp_path: Path, small_record: dict[Any, Any]
) -> None:
    small_record["1b"] = {"speedup": 0.8, "speedup_low": 0.7, "speedup_high": 0.9}
    page = write_report(write_run(tmp_path, **ALL)).read_text()
    told = (
        '<a class="caption warn" href="#stored-sizes">at 1b 0.80× '
        '<span class="ends">[0.70, 0.90]</span></a>'
    )
    assert page.count(told) == 4, "for each load, in the verdict on all and in its own"
    other = write_report(write_run(tmp_path / "other", **(ALL | {"models": (Model("mine"),)})))
    assert "at 1b" not in other.read_text()


def test_other_models_and_a_clone_without_the_record_show_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (Model("0.5b", shape=True),)
    seen = overview(load(write_run(tmp_path / "other", models=other, **SMALL)))
    assert stored_sizes.section(seen, Samples()) is None
    assert stored_sizes.on_larger(seen) == {}
    monkeypatch.setattr(stored_sizes, "REFERENCE", tmp_path / "gone")
    seen = overview(load(write_run(tmp_path / "demo", **SMALL)))
    assert stored_sizes.section(seen, Samples()) is None
    assert stored_sizes.on_larger(seen) == {}


def test_the_record_is_whole_and_says_what_it_is() -> None:
    stored = overview(load(stored_sizes.REFERENCE / stored_sizes.RECORD))
    assert {row["status"] for row in stored.rows} == {"ok"}
    assert {row["provenance"] for row in stored.rows} == {REPLAYED}
    assert {row["model"] for row in stored.rows} == {"0.1b", "0.5b", "1b"}
    assert len({row["workload"] for row in stored.rows}) == 1, "a row is of one workload"
    assert all(row["floor_share"] for row in stored.rows if row["backend"] != "tetris")


def test_which_way_a_speed_up_passes_1_is_told_of_valid_points_with_narrow_intervals(
    demo: Overview, small_record: dict[Any, Any]
) -> None:
    def remark(**told: Any) -> str:
        small_record["1b"] = {"floor_share": 1.0, "overhead_share": 0.0, **told}
        (row,) = (
            row
            for row in table_of(demo).rows
            if (row.variant.backend, row.load) == ("adadecode", "closed c=1")
        )
        return re.sub(r" above about \S+ GB", "", row.cells[-1].text)

    slower = {"speedup_native": 0.5, "speedup_native_low": 0.4, "speedup_native_high": 0.6}
    assert remark(**slower) == "falls below 1"
    wide = {**slower, "speedup_native_high": 1.6}
    assert remark(**wide) == "whether it passes 1 cannot be told"
    assert remark(**wide, void_metrics=["speedup_native"]) == ""
    bound = "overhead-bound at 1b too: unknown beyond"
    small_record["1b", "vllm"] = {"floor_share": 0.4}
    assert remark(**slower) == f"falls below 1; over vllm {bound}", "both sides of ours are sound"
    small_record["1b", "autoregressive"] = {"floor_share": 0.4}
    assert remark(**slower) == bound
    del small_record["1b", "vllm"]
    assert remark(**slower) == f"over plain {bound}"


def test_of_several_variants_the_one_that_was_run_as_the_record_s_is_told_of(
    demo: Overview,
) -> None:
    """The one that was listed first had the record's ratio, whatever its options."""
    _, stored = stored_sizes._stored(stored_sizes.REFERENCE / stored_sizes.RECORD)
    own = next(v for v in demo.variants if v.backend == "adadecode")
    there = next(
        cell for cell in stored.cells if (cell.variant.backend, cell.model) == (own.backend, "0.1b")
    )

    def told(options: dict[str, Any], gamma: Any) -> set[int]:
        other = dataclasses.replace(own, index=9, options=options)
        more = [
            dataclasses.replace(cell, variant=other, effective={**cell.effective, "gamma": gamma})
            for cell in demo.cells
            if cell.variant is own
        ]
        seen = dataclasses.replace(demo, cells=(*demo.cells, *more))
        rows = [one for one in stored_sizes._grown(seen) if one.variant.backend == own.backend]
        assert rows, "its row stays, whatever the options"
        found = {key[0] for key in stored_sizes.on_larger(seen)} & {own.index, other.index}
        for row in rows:
            assert (
                "with other options than here" in stored_sizes._remark(row, "vllm")
            ) is not bool(found)
        return found

    assert told({"gamma": 0.99}, 0.99) == set()
    assert told({"gamma": 0.8}, there.effective["gamma"]) == {9}
    assert told({}, 0.99) == {9}, "asked for as the record's"
    assert told({"gamma": 0.75, "replay": "demo"}, 0.75) == {own.index}, "nothing tells them apart"
