"""Reasons against numbers, in the order of their weight."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from reports.cells import overview
from reports.collect import Samples
from reports.sections import validity
from results import load
from results.compare.reasons import NO_MEDIAN, REASONS, REMARKS, weight
from tests.support.results.report_runs import LOADS, MadeUpBackend, write_run

TOLD = {
    "too-few-samples": (9, "too-few-samples: 20 requests"),
    "reference-not-valid": (3, "reference-not-valid: vllm"),
    "machine-noisy": (2, "machine-noisy: others used 30%"),
    "failures": (1, "failures: 1 request"),
}


def test_what_makes_all_of_a_trial_doubtful_comes_first_and_remarks_last() -> None:
    slugs = sorted((reason.slug for reason in REASONS), key=weight)
    places = [slug in REMARKS for slug in slugs]
    assert places == sorted(places)
    weighty = [slug for slug in slugs if slug not in REMARKS]
    concerns = {reason.slug: reason.concerns for reason in REASONS}
    assert list(dict.fromkeys(concerns[s] for s in weighty)) == ["all", "times", "comparison"]
    assert slugs[0] == "failures"
    known = sorted(["too-few-samples", "of-another-tool", "machine-noisy"], key=weight)
    assert known == ["machine-noisy", "of-another-tool", "too-few-samples"]


def test_order_does_not_follow_how_often_a_reason_occurs(troubled_dir: Path) -> None:
    seen = overview(load(troubled_dir))
    cells = tuple(
        dataclasses.replace(cell, reasons=dict(sorted(TOLD.items(), reverse=turn % 2 > 0)))
        for turn, cell in enumerate(seen.cells)
        if cell.is_measured
    )
    made = validity.section(dataclasses.replace(seen, cells=cells), Samples())
    named = [found[1] for said in made.words if (found := re.match(r"([\w-]+): \d+ of", said))]
    assert named == ["failures", "machine-noisy", "reference-not-valid"]
    assert made.table is not None
    texts = [row.cells[-1].text.partition(":")[0] for row in made.table.rows]
    assert texts == sorted(TOLD, key=weight) * len(cells)


def test_what_makes_a_whole_trial_doubtful_is_no_remark(tmp_path: Path) -> None:
    few = "too-few-samples: 4 answers say nothing about p50, p95, p99 (p50 needs 5)"
    engines = (MadeUpBackend("vllm", 0.010), MadeUpBackend("fast", 0.005, reasons=(few,)))
    folder = write_run(
        tmp_path, engines=engines, workloads=["gsm8k"], loads=LOADS[:1], repeats=2, requests=4
    )
    (told,) = [
        said
        for said in validity.section(overview(load(folder)), Samples()).words
        if said.startswith(NO_MEDIAN)
    ]
    assert told == f"{NO_MEDIAN}: 2 of 4 trials, in 1 cell."
