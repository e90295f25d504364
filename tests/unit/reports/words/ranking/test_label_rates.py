"""What is said of labels per second over the reference's, as far as repeats tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.core.nouns import Load
from reports.cells import overview
from reports.words.quality import AnswerQuality, TaskQuality
from reports.words.ranking.headline import headline
from reports.words.verdict import VerdictLine, verdicts
from results.compare.judged import PairedScores
from tests.support.results.label_runs import CLASSIFIERS, MadeUpClassifier, label_run

ONE = (Load("closed", concurrency=1),)
PLAIN, EARLY, PATIENT = CLASSIFIERS


def told(
    folder: Path,
    slower: Sequence[float],
    loads: Sequence[Load] = ONE,
    rivals: Sequence[MadeUpClassifier] = (EARLY,),
) -> tuple[str, VerdictLine]:
    """The headline, and the verdict on the first rival, who takes half as long times `slower`."""
    seen = overview(label_run(folder, loads, (PLAIN, *rivals), slower))
    found = verdicts(seen.cells, seen.variants, seen.why_no_speedup)
    return headline(seen.cells, seen.variants, seen.why_no_speedup), found[1]


def test_repeats_on_both_sides_of_1_show_nothing(tmp_path: Path) -> None:
    first, line = told(tmp_path, (1.6, 2.0, 3.2))
    assert (line.speed, line.interval, line.speed_tone) == ("1.00×", "[0.62, 1.25]", "muted")
    assert line.speed_caption.endswith("; 1 cell; no clear difference")
    assert line.sentence.startswith(
        "No clear difference in labels per second: 1.00× [0.62, 1.25]; "
    )
    assert first == (
        "Labels per second of classifier-early-exit over classifier's, repeats in [0.62, 1.25]: "
        "1.00× in 1 cell. No clear difference."
    )


def test_repeats_on_one_side_are_told_with_their_range(tmp_path: Path) -> None:
    first, line = told(tmp_path, (1.0, 1.25, 1.6))
    assert (line.speed, line.interval, line.speed_tone) == ("1.60×", "[1.25, 2.00]", "")
    assert line.sentence.startswith("1.60× the reference's labels per second [1.25, 2.00]; ")
    assert first.endswith("repeats in [1.25, 2.00]: 1.60× in 1 cell.")


def test_the_noise_of_one_repeat_is_unknown(tmp_path: Path) -> None:
    first, line = told(tmp_path, (1.0,))
    assert (line.speed, line.interval, line.speed_tone) == ("2.00×", "", "muted")
    assert line.speed_caption == (
        "labels per second over the reference's; 1 cell; one repeat: noise unknown"
    )
    assert line.sentence.startswith(
        "2.00× the reference's labels per second; one repeat: noise unknown; "
    )
    assert first == (
        "Labels per second of classifier-early-exit over classifier's: 2.00× in 1 cell. "
        "One repeat: noise unknown."
    )


def test_all_that_tie_are_named(tmp_path: Path) -> None:
    tied = PATIENT._replace(answer_ms=EARLY.answer_ms)
    first, _ = told(tmp_path, (1.0, 1.0, 1.0), rivals=(EARLY, tied))
    assert first == (
        "Labels per second of classifier-early-exit, tetris-classifier over classifier's, repeats "
        "in [2.00, 2.00]: 2.00× in 2 cells."
    )


def test_doubtful_cells_are_counted(tmp_path: Path) -> None:
    first, _ = told(tmp_path, (1.0, 1.2, 1.4), rivals=(EARLY, PATIENT))
    assert first.endswith("[1.43, 2.00]). No clear difference in 1 of 2 cells.")


def test_labels_that_are_not_as_good_are_named_behind_their_rate(tmp_path: Path) -> None:
    """Half of the early labels are other ones, and wrong; those of patience are all the same."""
    seen = overview(label_run(tmp_path, classifiers=CLASSIFIERS))
    others = [
        replace(cell, metrics={**cell.metrics, "consistency_ratio": 0.5})
        if cell.variant.name == EARLY.name
        else cell
        for cell in seen.cells
    ]
    scores = PairedScores(1.0, 0.5, 24, "worse", 0)
    judged = {1: AnswerQuality([TaskQuality("sentiment (bundled)", "accuracy", scores)])}
    rate = headline(seen.cells, seen.variants, "", judged)
    assert headline(others, seen.variants, "", judged) == (
        f"{rate} classifier-early-exit: its answers are worse than the reference's: "
        "sentiment (bundled) accuracy 1.00 → 0.500."
    )
    assert headline(others, seen.variants, "") == (
        f"{rate} classifier-early-exit: it came with different answers to 50.0% of the requests, "
        "and no task score says what that costs."
    )
