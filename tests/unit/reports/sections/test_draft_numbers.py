"""The section "draft-numbers": curves over the most drafts, a line for each threshold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.cells import overview
from reports.collect import Samples
from reports.page import write_report
from reports.sections import draft_numbers
from reports.sweeps import option_curves
from results import load
from tests.support.results.drafting_runs import changed
from tests.support.results.report_runs import LOADS, MadeUpBackend, write_run

PLAIN = MadeUpBackend("autoregressive", 0.010)
GRID = tuple(
    MadeUpBackend("speculative", 0.008 + most / 1e4, {"drafts": most, "threshold": threshold})
    for threshold in (0.3, 0.8)
    for most in (14, 2, 8)
)


def run(folder: Path, *engines: MadeUpBackend) -> Path:
    return write_run(
        folder,
        engines=(PLAIN, *engines),
        workloads=["humaneval"],
        loads=LOADS[:1],
        reference="autoregressive",
    )


def test_a_line_for_each_threshold(tmp_path: Path) -> None:
    auto = MadeUpBackend("speculative", 0.007, {"threshold": 0.3})
    folder = run(tmp_path, *GRID, auto)
    seen = overview(load(folder))
    curves = option_curves(seen.cells, "drafts")
    assert [curve.label for curve in curves] == ["threshold=0.3", "threshold=0.8"]
    assert [[value for value, _ in curve.cells] for curve in curves] == [[2, 8, 14]] * 2
    made = draft_numbers.section(seen, Samples())
    assert made is not None
    assert [group.title for group in made.groups] == ["Speed-up"], "nothing tells of acceptance"
    told = [changed(c, acceptance_rate=0.5) if c.variant.options else c for c in seen.cells]
    made = draft_numbers.section(replace(seen, cells=tuple(told)), Samples())
    assert made is not None
    assert [group.title for group in made.groups] == ["Speed-up", "Acceptance"]
    assert "drafts=14" in write_report(folder).read_text()


@pytest.mark.parametrize("kept", [0, 2])
def test_without_three_numbers_there_is_no_section(tmp_path: Path, kept: int) -> None:
    seen = overview(load(run(tmp_path, *GRID[:kept], MadeUpBackend("adadecode", 0.008))))
    assert draft_numbers.section(seen, Samples()) is None
