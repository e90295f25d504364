"""Cells that failed: in BASE, in both runs, and in a run that is to be a baseline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.cli.gate.confirm import _exchanged
from results.compare.gate.comparison import compare_runs
from results.compare.gate.margins import DEFAULTS, GateRules, MarginRule
from results.compare.gate.reduced import ReducedRun
from tests.support.results.reduced_runs import a_run, cell, everywhere, joined

TPOT = GateRules((MarginRule("tpot_s", 0.05),))
FAILED: dict[str, Any] = {
    "status": "timeout", "values": {}, "ids": [], "answers": np.zeros(0, np.int64),
}  # fmt: skip


def with_failed(where: str, **changes: Any) -> ReducedRun:
    """One cell that failed beside one that did not."""
    failed = everywhere(a_run(where), **{**FAILED, **changes})
    return joined(where, [failed, everywhere(a_run(where), cell=cell("sound"))])


@pytest.mark.parametrize("rules", [TPOT, DEFAULTS])
def test_a_cell_that_failed_in_both_runs_is_inconclusive(rules: GateRules) -> None:
    """It vanished, and the gate passed by the others."""
    decision = compare_runs(with_failed("BASE"), with_failed("NEW"), rules)
    assert decision.verdict == "inconclusive"
    failed, *others = decision.rows
    assert (failed.cell, failed.note) == (cell(), "no trial of BASE ended well")
    assert {row.verdict for row in others} == {"pass"}


def test_a_cell_that_was_tried_in_neither_run_says_nothing() -> None:
    base, new = (with_failed(name, status="skipped") for name in ("BASE", "NEW"))
    assert compare_runs(base, new, TPOT).verdict == "pass"
    assert compare_runs(base, with_failed("NEW"), TPOT).verdict == "inconclusive"


def test_a_cell_without_a_rule_may_fail_in_both_runs() -> None:
    rules = GateRules((MarginRule("tpot_s", 0.05, backend="sound"),))
    assert compare_runs(with_failed("BASE"), with_failed("NEW"), rules).verdict == "pass"


def test_a_second_run_that_crashes_on_both_sides_is_no_pass() -> None:
    """A slow-down of 50% became exit 0 by it."""
    sound = everywhere(a_run(), cell=cell("sound"))
    base, slow = (joined("run", [a_run(slower=slower), sound]) for slower in (0.0, 0.5))
    assert compare_runs(base, slow, TPOT).verdict == "fail"
    crashed = everywhere(a_run(), **FAILED)
    again = [_exchanged(run, crashed, {cell()}) for run in (base, slow)]
    assert compare_runs(again[0], again[1], TPOT).verdict == "inconclusive"
