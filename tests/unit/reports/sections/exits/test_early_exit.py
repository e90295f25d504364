"""The sections on batches that leave early: drawn when there are any, saying what was counted."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from reports.cells import Cell, Overview, overview
from reports.figures.exits import believed, shares
from reports.page import write_report
from reports.sections.exits.techniques import COLUMNS
from reports.sections.results import QUALITY_COLUMN
from reports.tables import build, scope
from reports.words import techniques
from results import load
from tests.support.batch_steps import STATEMENT, BatchSteps
from tests.support.exits.early_exits import Exits
from tests.support.results.report_pages import LEAVING, leaving, rows, section, written
from tests.support.results.report_runs import ENGINES, PLAIN, TECHNIQUES, MadeUpBackend, write_run

NAMES = ("techniques", "gains", "exitbatch", "exits")


@pytest.fixture(scope="module")
def seen(leaving_dir: Path) -> Overview:
    return overview(load(leaving_dir))


@pytest.fixture(scope="module")
def text(leaving_dir: Path) -> str:
    return write_report(leaving_dir).read_text()


def test_sections_are_drawn_for_batches_that_leave_only(run_text: str, text: str) -> None:
    assert [name for name in NAMES if section(run_text, name)] == []
    assert [name for name in NAMES if section(text, name)] == list(NAMES)
    assert not [name for name in ("prediction", "ablations", "gamma") if section(text, name)]
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert all(f'href="#{name}"' in text for name in NAMES)


def test_the_sections_of_early_predictions_stay_theirs(tmp_path: Path) -> None:
    """The same page with and without batches that leave early, where both kinds have exits."""
    predicting = (
        PLAIN,
        *(MadeUpBackend("adadecode", 0.0, {"gamma": g}, exits=Exits()) for g in (1, 2, 3)),
    )
    asked = {"reference": "autoregressive"}
    alone = written(tmp_path / "alone", *predicting, **asked)
    both = written(tmp_path / "both", *predicting, TECHNIQUES[2], **asked)
    for name in ("prediction", "ablations", "gamma"):
        legends = re.compile(r'<ul class="legend">.*?</ul>', re.DOTALL)
        own, other = (legends.sub("", section(page, name)) for page in (alone, both))
        assert own
        assert own == other
    notes = [section(page, "exits").partition("</p>")[0] for page in (alone, both)]
    assert "drafts that verification threw away" in notes[0]
    assert "thin bar" not in notes[0]
    assert "thin bar" in notes[1]
    assert "softmax auto" in section(both, "exits")
    assert not section(alone, "techniques")


def test_the_table_has_the_paper_s_columns(seen: Overview, text: str) -> None:
    found = rows(text, "techniques")
    assert len(found) == len(seen.cells) == 24
    for cell, row in zip(seen.cells, found, strict=True):
        for metric in ("output_tok_per_s", "inner_token_latency_s", "rouge_l_to_label"):
            if (value := cell.value(metric)) is not None:
                assert f'data-sort="{value!r}"' in row
        if cell.variant.is_reference:
            assert ">full</td>" in row
            assert "official code, reference" in row
            continue
        for metric in ("rouge_l_to_full", "early_exit_rate", "speedup"):
            assert f'data-sort="{cell.value(metric)!r}"' in row
        assert f">{cell.effective['measure']}</td>" in row
    assert ">layer 4</td>" in found[1]
    assert re.search(r'>0\.91 0\.84 0\.7 <span class="interval">calibrated</span>', found[2])
    for cell, row in zip(seen.cells, found, strict=True):
        if cell.measured.calibration:
            alone = (cell.load_kind, cell.load_value) == ("closed", 1)
            assert (">calibrated one at a time<" in row) != alone
            assert (">calibrated<" in row) == alone
    assert ">0.8</td>" in found[3]
    assert f"<p>Softmax, calibrated: {STATEMENT}</p>" in section(text, "techniques")


def test_shares_are_of_all_tokens_of_all_repeats(seen: Overview, leaving_dir: Path) -> None:
    requests = load(leaving_dir).requests
    for cell in leaving(seen):
        found = shares(cell)
        assert found is not None
        own = requests[requests["key"].isin(cell.keys)]
        decoded = own["n_tokens"].sum() - len(own)  # a prompt's own token is not decoded
        for layer, counts in cell.metrics["exits_by_layer"].items():
            assert found.by_layer[layer] == pytest.approx(counts["exits"] / decoded)


def test_results_lost_behind_words_kept_are_said(seen: Overview) -> None:
    def with_scores(cell: Cell, exact: float, alike: float) -> Cell:
        scores = {"exact_match": exact, "rouge_l_to_full": alike}
        return dataclasses.replace(cell, metrics={**cell.metrics, **scores})

    full = next(c for c in seen.cells if c.workload == "gsm8k" and c.variant.is_reference)
    cells = [c for c in leaving(seen) if (c.workload, c.load) == (full.workload, full.load)]
    whole = with_scores(full, 0.8, 1.0)

    def said(*scores: tuple[float, float]) -> list[str]:
        changed = [with_scores(cell, *pair) for cell, pair in zip(cells, scores, strict=False)]
        page = dataclasses.replace(seen, cells=(whole, *changed))
        return techniques.losses(page, changed)

    assert said((0.6, 0.8), (0.08, 0.7), (0.2, 0.71)) == [
        f"gsm8k: exact match is 0.800 with full and 0.0800 with {techniques.label(cells[1])} "
        f"({full.load}), though ROUGE-L to full is 0.700: words are kept, results are not."
    ]
    cells, kept = [dataclasses.replace(cell, apart="seed 1") for cell in cells], cells
    assert f" ({full.load}, seed 1), though" in said((0.6, 0.8), (0.08, 0.7))[0]
    cells = kept
    assert said((0.6, 0.8), (0.5, 0.7)) == []
    assert said((0.0, 0.3)) == [], "words are lost too"
    whole = with_scores(full, 4.9 / full.samples, 1.0)
    assert said((0.0, 0.8)) == [], "too few were right"
    assert techniques.losses(seen, []) == []


def test_labels_tell_the_technique_first(seen: Overview) -> None:
    found = list(dict.fromkeys(techniques.label(cell) for cell in seen.cells))
    expected = ["full", "static", "softmax auto", "softmax 0.8", "classifier 0.9", "state 0.95"]
    assert found == expected


def test_options_beside_measure_and_threshold_are_in_the_label(tmp_path: Path) -> None:
    engines = [
        MadeUpBackend("vllm-early-exit", 0.0, {"measure": "softmax", **more}, exits=BatchSteps())
        for more in ({}, {"decay": "calm"}, {"enforce_eager": True}, {"thresholds": [0.8, 0.7]})
    ]
    run = load(write_run(tmp_path, engines=engines, **{**LEAVING, "repeats": 1, "requests": 4}))
    found = {techniques.label(cell) for cell in overview(run).cells}
    assert found == {
        "softmax", "softmax calm", "softmax enforce_eager=yes", "softmax [0.8, 0.7]",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "quality_struck"),
    [
        ("machine-noisy: others used 30%", False),
        ("length-mismatch: 3 of 12 outputs", False),
        ("failures: 2 of 12 requests failed", True),
    ],
)
def test_doubts_about_times_strike_speed_only(
    seen: Overview, reason: str, quality_struck: bool
) -> None:
    cell = dataclasses.replace(
        leaving(seen)[1], valid_trials=0, reasons={reason.partition(":")[0]: (2, reason)}
    )
    (row,) = build(COLUMNS, [cell], scope).rows
    *_, full, label, rate, throughput, inner, speedup = row.cells
    assert ["struck" in item.css for item in (full, label, rate)] == [quality_struck] * 3
    assert all("struck" in item.css for item in (throughput, inner, speedup))
    assert row.validity == "not valid"


def test_a_noisy_machine_leaves_exits_of_batches_as_they_are(seen: Overview) -> None:
    cell = leaving(seen)[1]
    for reason, holds in (("machine-noisy", True), ("failures", False)):
        doubted = dataclasses.replace(cell, valid_trials=0, reasons={reason: (1, reason)})
        assert believed(doubted) == holds


def test_gains_are_over_the_reference_of_the_repeat(seen: Overview, text: str) -> None:
    drawn = section(text, "gains")
    assert drawn.count("<figure") == 4
    for cell in leaving(seen):
        throughput, latency = (
            cell.value(name) or 0 for name in ("throughput_ratio", "inner_token_latency_ratio")
        )
        words = f"{cell.variant.label} (lossy): {cell.workload}, "
        assert f"<title>{words}{throughput:.2f}×</title>" in drawn
        assert f"<title>{words}{latency:.2f}×</title>" in drawn
    assert "(lossy): gsm8k, 1.0" in drawn
    assert not re.search(r"<title>vllm: ", drawn)


def test_without_a_reference_there_are_no_gains(tmp_path: Path) -> None:
    text = written(tmp_path, *TECHNIQUES[1:3])
    assert not section(text, "gains")
    assert "<figure" not in section(text, "techniques")
    assert len(rows(text, "techniques")) == 4
    assert section(text, "exitbatch")


def test_a_backend_that_never_leaves_has_a_row_and_no_histogram(tmp_path: Path) -> None:
    never = MadeUpBackend(
        "vllm-early-exit", 0.0, {"measure": "never"}, exits=BatchSteps((), (), "never", ())
    )
    text = written(tmp_path, ENGINES[0], never)
    row = rows(text, "techniques")[1]
    assert ">never</td>" in row
    assert 'data-sort="0.0"' in row
    assert not section(text, "exits")
    assert "<figure" not in section(text, "exitbatch")


def test_the_histogram_has_the_counts(seen: Overview, text: str) -> None:
    for cell in leaving(seen):
        for count in ("exits", "own_exits"):
            found = shares(cell, count)
            assert found is not None
            assert sum(found.by_layer.values()) + found.full_depth == pytest.approx(1.0)
            skipped = sum((8 - int(layer)) * share for layer, share in found.by_layer.items())
            rate = "early_exit_rate" if count == "exits" else "early_exit_rate_own"
            assert skipped / 8 == pytest.approx(cell.value(rate), abs=0.004)
    drawn = section(text, "exits")
    assert re.search(r"gsm8k, alone layer 2 [\d.]+%, .*full depth [\d.]+%</title>", drawn)
    assert "rejected" not in drawn
    assert "verification" not in drawn


def test_what_a_backend_says_is_escaped(tmp_path: Path) -> None:
    evil: Any = dataclasses.replace(TECHNIQUES[2].exits, measure="softmax")  # type: ignore[type-var]
    engine = dataclasses.replace(TECHNIQUES[2], exits=_Evil(**dataclasses.asdict(evil)))
    strange = dataclasses.replace(TECHNIQUES[1], options={"measure": "<img src=y>"})
    text = written(tmp_path, ENGINES[0], engine, strange)
    assert "<img" not in text
    assert "&lt;img src=x&gt;⟨U+202E⟩" in section(text, "techniques")


class _Evil(BatchSteps):
    def options(self, asked: Any) -> dict[str, Any]:
        bad = "<img src=x>\u202e"
        return {**super().options(asked), "thresholds": [bad, None], "calibration_statement": bad}


def test_the_flexible_score_stands_beside_the_official_one(seen: Overview) -> None:
    cell = next(c for c in seen.cells if c.workload == "gsm8k")
    both = {**cell.metrics, "exact_match": 0.25, "exact_match_flexible": 0.5}
    found = QUALITY_COLUMN.cell(dataclasses.replace(cell, metrics=both), "num")
    assert found.small == "exact match, 0.500 flexible"
    alone = {**both, "exact_match_flexible": None}
    found = QUALITY_COLUMN.cell(dataclasses.replace(cell, metrics=alone), "num")
    assert (found.text, found.small) == ("0.250", "exact match")
