"""A run of classifiers, whose answers have a rate and no tokens, on a page and in a terminal."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli.cells.table import fitted
from harness.core.nouns import Load
from reports.cells import Overview, overview
from reports.collect import Samples
from reports.figures.exits import shares
from reports.page import render, write_report
from reports.sections import results as results_table
from reports.sections.answers import tradeoff
from reports.sections.exits import by_layer, techniques
from reports.sections.searched import without_probes
from reports.sections.speed import load as load_section
from reports.sections.speed import swept, throughput
from reports.tables import BodyCell, Table
from reports.words.ranking.headline import headline
from reports.words.verdict import verdicts
from results import load
from results.rows import cells
from tests.support.results.label_runs import REQUESTS, label_run

RATES = {"classifier": 125.0, "classifier-early-exit": 250.0, "tetris-classifier": 1000 / 6}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("labels")


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[dict[str, Any]]:
    return cells(label_run(folder))


@pytest.fixture(scope="module")
def seen(folder: Path, rows: list[dict[str, Any]]) -> Overview:
    return overview(label_run(folder))


def column(table: Table | None, title: str) -> dict[str, BodyCell]:
    """Backend -> what stands under a heading, whose unit is a part of it."""
    assert table is not None
    heads = [head for head in (*table.groups, *table.subheads) if head.column is not None]
    (place,) = [head.column for head in heads if f"{head.title} {head.unit}".strip() == title]
    assert place
    return {row.variant.backend: row.cells[place - 1] for row in table.rows}


def test_what_counts_tokens_is_undefined(rows: list[dict[str, Any]]) -> None:
    for cell in rows:
        for name in ("output_tok_per_s", "goodput_tok_per_s", "tokens_per_step"):
            assert cell[name] is None, name
        assert cell["output_tokens"] == 0
        assert cell["request_per_s"] == pytest.approx(RATES[cell["backend"]])
        times = RATES[cell["backend"]] / RATES["classifier"]
        assert cell["throughput_ratio"] == pytest.approx(times)


def test_the_terminal_shows_labels_a_second(rows: list[dict[str, Any]]) -> None:
    found = fitted(rows)
    shown = [row[list(found.headings).index("labels/s")] for row in found.tables[0].rows]
    assert shown == ["125", "250", "167"]
    assert "tok/s" not in found.headings
    failed = {**rows[0], "request_per_s": None}
    assert "labels/s" in fitted([*rows, failed]).headings, "it has no rate of either"
    text = {**rows[0], "model": "demo", "output_tok_per_s": 2.0}
    mixed = fitted([*rows, text])
    shown = [table.rows[0][list(mixed.headings).index("tok/s")] for table in mixed.tables]
    assert shown == ["125", "2"]
    assert "tok/s: of answers that are labels, labels/s" in mixed.notes


def test_a_narrow_terminal_leaves_out_what_labels_cannot_have(rows: list[dict[str, Any]]) -> None:
    shown = fitted(rows, 60).headings
    assert list(shown) == ["backend", "same", "labels/s", "TTFT ms", "valid"]


def test_throughput_is_labels_a_second(seen: Overview) -> None:
    made = results_table.section(seen, Samples())
    shown = column(made.table, "Throughput labels/s")
    assert {name: cell.text for name, cell in shown.items()} == {
        "classifier": "125", "classifier-early-exit": "250", "tetris-classifier": "167",
    }  # fmt: skip
    told = techniques.section(seen, Samples())
    assert told is not None
    beside = column(told.table, "Throughput labels/s")["classifier-early-exit"]
    assert (beside.text, beside.small) == ("250", "2.00×")
    drawn = throughput.section(seen, Samples())
    assert drawn.finding == (
        "Labels per second: 125 (classifier on sentiment, closed c=1) to 250 "
        "(classifier-early-exit on sentiment, closed c=1)."
    )
    (panel,) = drawn.groups[0].panels
    assert panel.title.startswith("Labels per second by workload and backend")


def test_exits_are_shares_of_the_labels(seen: Overview) -> None:
    _, early, patient = seen.cells
    assert shares(early) == ({"2": 0.5, "4": 0.25}, 0.25, 0.0)
    assert shares(patient) == ({"2": 0.0, "4": 0.5}, 0.5, 0.0)
    made = by_layer.section(seen, Samples())
    assert made is not None
    assert made.note.startswith("Labels by where they were predicted")
    assert made.finding == (
        "50.0% (tetris-classifier on sentiment, closed c=1) to 75.0% (classifier-early-exit on "
        "sentiment, closed c=1) of the labels were predicted before full depth."
    )
    (panel,) = made.groups[0].panels
    assert panel.title.startswith("Share of labels by the layer")


def test_nothing_is_left_at_full_depth_where_all_left_early(seen: Overview) -> None:
    left = (201.0, 6.0, 57.0, 18.0, 15.0, 0.0, 3.0)
    counts = {str(at): {"checks": 300.0, "exits": n} for at, n in enumerate(left, start=1)}
    cell = replace(seen.cells[1], metrics={**seen.cells[1].metrics, "exits_by_layer": counts})
    found = shares(cell)
    assert found is not None
    assert found.full_depth == 0


def test_each_technique_has_its_threshold(seen: Overview) -> None:
    made = techniques.section(seen, Samples())
    assert made is not None
    named, limits = (column(made.table, title) for title in ("Technique", "Threshold"))
    shown = {name: (named[name].text, limits[name].text) for name in named}
    assert shown == {
        "classifier": ("full", ""),
        "classifier-early-exit": ("entropy", "0.2"),
        "tetris-classifier": ("patience", "3 in a row"),
    }
    assert limits["classifier"].undefined == "no layer is ever skipped"
    assert made.finding.startswith("Layer passes skipped: 25.0% (tetris-classifier")


def test_labels_against_the_load(tmp_path: Path) -> None:
    loads = [Load("closed", concurrency=number) for number in (1, 2)]
    made = load_section.section(overview(label_run(tmp_path, loads)), Samples())
    assert made.finding.startswith("From 1 to 2 requests at a time throughput grows 1.00 times")
    (lines,) = made.groups
    assert [panel.title.partition(":")[0] for panel in lines.panels] == [
        "Labels per second against concurrency"
    ]


def test_the_verdict_is_over_the_references_labels_a_second(seen: Overview) -> None:
    assert headline(seen.cells, seen.variants, seen.why_no_speedup) == (
        "Labels per second over classifier's: 1.33× (tetris-classifier on sentiment, closed c=1 "
        "[1.33, 1.33]) to 2.00× (classifier-early-exit on sentiment, closed c=1 [2.00, 2.00])."
    )
    _, early, _ = verdicts(seen.cells, seen.variants, seen.why_no_speedup)
    assert (early.speed, early.speed_tone, early.strip) == ("2.00×", "", None)
    assert early.speed_caption == (
        "labels per second over the reference's, in brackets the range of the repeats; 1 cell"
    )
    assert early.interval == "[2.00, 2.00]"
    assert early.answers_caption == "all labels equal, the reference with itself 100%"
    assert early.sentence.startswith("2.00× the reference's labels per second [2.00, 2.00]; ")


def test_labels_are_set_against_labels_a_second(seen: Overview) -> None:
    made = tradeoff.section(seen, Samples())
    (panel,) = made.groups[0].panels
    assert panel.title.startswith("Share of same labels against labels per second over the refer")
    assert made.finding.startswith("Labels per second over the reference's: 1.33× (tetris-class")
    told = techniques.section(seen, Samples())
    assert told is not None
    same = column(told.table, "Same labels %")
    assert (same["classifier"].text, same["classifier-early-exit"].text) == ("", "100")
    (panel,) = told.groups[0].panels
    assert panel.title.startswith("Same labels against labels per second over full")


def test_a_sweep_of_labels_has_no_empty_panel(tmp_path: Path) -> None:
    run = label_run(tmp_path, [Load("poisson", rate=4.0)])
    keys = [one.record.key for one in run.stored if one.record.trial.backend == "classifier"]
    point = {"rate": 4.0, "kept_up": True, "keys": keys}
    system = {"low_per_s": 4.0, "high_per_s": None, "ended": "asked", "points": [point]}
    (tmp_path / "sweep.json").write_text(json.dumps({"systems": [system], "trials": keys}))
    _, found = without_probes(load(tmp_path))
    made = swept.section(found, Samples())
    assert made is not None
    assert [panel.title.partition(":")[0] for panel in made.groups[0].panels] == [
        "time to first token (ms) over requests per second",
        "labels/s over requests per second",
        "whole answer (ms) over labels/s",
    ]
    assert column(made.table, "Most labels labels/s")["classifier"].text == "125"
    assert made.table is not None
    assert "Each token" not in {head.title for head in made.table.subheads}
    assert (
        re.search("output_tok|tokens/s", render(load(tmp_path)).partition("definitions")[0]) is None
    )


def test_an_open_loads_rate_is_no_verdict(tmp_path: Path) -> None:
    found = overview(label_run(tmp_path, [Load("poisson", rate=4.0)]))
    assert headline(found.cells, found.variants, found.why_no_speedup).startswith("No speed-up")
    assert tradeoff.section(found, Samples()).note.startswith("Nothing to draw")


def test_void_rates_are_told_as_void(seen: Overview) -> None:
    doubted = [replace(cell, valid_trials=cell.trials - 1) for cell in seen.cells]
    first, early, _ = verdicts(doubted, seen.variants, seen.why_no_speedup)
    assert (first.speed, first.speed_tone) == ("reference", ""), "it is compared with nothing"
    assert (early.speed, early.speed_tone) == ("2.00×", "struck")
    assert early.speed_caption.endswith("; 1 cell, none valid")


def test_the_page_counts_no_tokens(folder: Path, rows: list[dict[str, Any]]) -> None:
    assert len(rows) == 3
    assert f"{REQUESTS} requests" in (text := write_report(folder).read_text())
    assert not re.search("tokens/s|Output tokens per second", text.partition('id="definitions"')[0])
