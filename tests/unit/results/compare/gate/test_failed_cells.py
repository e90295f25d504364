"""Cells that failed: in BASE, in both runs, and in a run that is to be a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.cli.gate.compare import _store
from harness.cli.gate.confirm import _exchanged
from harness.core.errors import UserError
from results.compare.gate.comparison import compare_runs
from results.compare.gate.margins import DEFAULTS, GateRules, MarginRule
from results.compare.gate.record_file import read_record, write_record
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


def test_a_rule_on_a_cell_that_failed_in_base_is_no_bad_input() -> None:
    each = [MarginRule("tpot_s", 0.05, backend=name) for name in ("fast", "sound")]
    rules = GateRules(tuple(each), where="gate.yaml")
    new = joined("NEW", [a_run("NEW"), everywhere(a_run("NEW"), cell=cell("sound"))])
    decision = compare_runs(with_failed("BASE"), new, rules)
    assert [row.verdict for row in decision.rows] == ["inconclusive", "pass"]
    typed = MarginRule("ttft_s", 0.05, backend="sound")
    with pytest.raises(UserError, match="has the metric 'ttft_s' in the cells of its rule"):
        compare_runs(with_failed("BASE"), new, GateRules((*each, typed), where="gate.yaml"))


def test_a_second_run_that_crashes_on_both_sides_is_no_pass() -> None:
    """A slow-down of 50% became exit 0 by it."""
    sound = everywhere(a_run(), cell=cell("sound"))
    base, slow = (joined("run", [a_run(slower=slower), sound]) for slower in (0.0, 0.5))
    assert compare_runs(base, slow, TPOT).verdict == "fail"
    crashed = everywhere(a_run(), **FAILED)
    again = [_exchanged(run, crashed, {cell()}) for run in (base, slow)]
    assert compare_runs(again[0], again[1], TPOT).verdict == "inconclusive"


def test_a_run_with_a_cell_that_failed_replaces_no_baseline(tmp_path: Path) -> None:
    run, kept = tmp_path / "run.parquet", tmp_path / "kept"

    def update(found: ReducedRun, *, unsound: bool = False) -> None:
        write_record(run, everywhere(found, fingerprint="0123456789ab"))
        _store(run, None, None, str(kept), unsound)

    update(a_run())
    (record,) = kept.iterdir()
    with pytest.raises(UserError, match="1 of 2 cells have no trial that ended well") as caught:
        update(with_failed("run"))
    assert "'--allow unsound' stores it" in str(caught.value)
    assert len(read_record(record).cells()) == 1
    update(with_failed("run", status="skipped"))
    assert len(read_record(record).cells()) == 2
    update(with_failed("run"), unsound=True)
    assert {t.status for t in read_record(record).trials} == {"ok", "timeout"}


def test_a_run_of_which_too_few_repeats_ended_well_replaces_no_baseline(tmp_path: Path) -> None:
    run = tmp_path / "run.parquet"
    lost = [t for n in (1, 2, 3) for t in everywhere(a_run(), **FAILED).trials if t.repeat == n]
    write_record(run, ReducedRun("run", [a_run().trials[0], *lost]))
    told = r"fewer than 2 sound repeats \(gsm8k, closed c=8, demo: fast: timeout\)"
    with pytest.raises(UserError, match=told):
        _store(run, None, None, str(tmp_path / "kept"), False)
