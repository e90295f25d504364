"""The page's words about replayed decisions: costs, and no rank beside real runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import results
from harness.core.nouns import REPLAYED, Load
from reports.cells import Overview, overview
from reports.page import render
from reports.words.ranking.headline import headline
from reports.words.verdict import verdicts
from tests.support.results.report_runs import MadeUpBackend, write_run

APART = "Not ranked, for their decisions were replayed:"
REPLAY = {"replay": "demo"}
REAL = (
    MadeUpBackend("vllm", 0.010, provenance="official code"),
    MadeUpBackend("vllm-early-exit", 0.008, changes=0.2, lossless=False),
)
MADE = (
    MadeUpBackend("vllm", 0.020, REPLAY, provenance=REPLAYED, lossless=False),
    MadeUpBackend("adadecode", 0.004, REPLAY, provenance=REPLAYED, lossless=False),
)


def seen(folder: Path, engines: Sequence[MadeUpBackend]) -> Overview:
    one = (Load("closed", concurrency=1),)
    return overview(
        results.load(write_run(folder, engines=engines, workloads=("gsm8k",), loads=one))
    )


def words(found: Overview) -> str:
    return headline(found.cells, found.variants, found.why_no_speedup)


def test_a_run_of_both_ranks_the_real_ones_only(tmp_path: Path) -> None:
    found = seen(tmp_path, REAL + MADE)
    text = words(found)
    assert text.startswith("vllm-early-exit (re-implementation, lossy†) was faster: 1.2")
    assert text.endswith(f"{APART} vllm replay=demo, adadecode (replayed).")
    lines = verdicts(found.cells, found.variants, found.why_no_speedup)
    assert [line.variant.is_replay for line in lines] == [False, False]


def test_a_run_of_replays_compares_costs(tmp_path: Path) -> None:
    found = seen(tmp_path, MADE)
    text = words(found)
    assert text.startswith(f"adadecode ({REPLAYED}) was faster: 5.0")
    assert text.endswith("].")
    (_, line) = verdicts(found.cells, found.variants, found.why_no_speedup)
    assert (line.answers, line.answers_caption) == ("–", REPLAYED)
    assert "answers" not in line.sentence


def test_without_a_real_reference_nothing_is_ranked(tmp_path: Path) -> None:
    found = words(seen(tmp_path, (REAL[1], *MADE)))
    assert found.startswith("The reference was not run with its own decisions, so nothing")


def test_a_reference_that_does_not_replay_is_not_said_to_be_alone(tmp_path: Path) -> None:
    text = words(seen(tmp_path, (REAL[0], MADE[1])))
    why = "Only the reference was run with its own decisions, and replays are compared with replays"
    assert text == f"{why} alone. {APART} adadecode (replayed)."


def test_replays_that_ended_are_not_said_to_have_failed(tmp_path: Path) -> None:
    found = seen(tmp_path, (REAL[0], MADE[1]))
    failed = "Every trial with its own decisions failed. The errors are listed below."
    cells = [c if c.variant.is_replay else replace(c, trials=1, failed=1) for c in found.cells]
    text = headline(cells, found.variants, found.why_no_speedup)
    assert text == f"{failed} {APART} adadecode (replayed)."


def test_the_page_names_the_provenance_and_has_no_answers(tmp_path: Path) -> None:
    seen(tmp_path, MADE)
    page = render(results.load(tmp_path))
    assert page.count(REPLAYED) > 2
    assert "No trial has answers" in page
    assert "same answers" not in page
    assert "(lossy)" not in page
    assert page.count("†") == 1, "in the glossary"
