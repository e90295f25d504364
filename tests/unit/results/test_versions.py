"""Folders in which a trial has several records: of code before it was changed, or of copies."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

import results
from harness.core.errors import UserError
from harness.core.names import STAND_IN
from harness.core.nouns import TrialRecord, Validity
from results import rows
from results.compare.gate.comparison import compare_runs
from results.compare.gate.extraction import check_whole, reduce_run
from results.compare.gate.margins import GateRules, MarginRule
from tests.support.results.make_trials import VALID, record, trial
from tests.support.results.stored_runs import answer, run_of

TPOT = GateRules((MarginRule("tpot_s", 0.05),))
NOISY = Validity(False, ("machine-noisy: others used 30%",))


def by(code: str, repeat: int = 0, *, day: int = 1, step_ms: float = 2, **more: Any) -> TrialRecord:
    """A repeat that some code ran on a day."""
    environment = {"fingerprint": "here", "code": code, "invocation": f"{code} {day}"}
    found = record(
        trial("vllm", repeat=repeat, options={"block": 32}),
        [answer(step_ms, range(9), f"r{n}") for n in range(6)],
        environment=environment,
        started_at=f"2026-01-{day:02d}T00:00:00+00:00",
        **more,
    )
    return dataclasses.replace(found, key=found.trial.key("here", code))


def failed(code: str, repeat: int = 0, **more: Any) -> TrialRecord:
    lost = by(code, repeat, status="failed", validity=Validity(False, ("failures: all",)), **more)
    return dataclasses.replace(lost, generations=())


def shown(run: results.Run) -> list[tuple[int, str]]:
    return [(row["repeat"], row["status"]) for row in rows.summaries(run)]


def test_code_that_fails_is_not_passed_by_what_the_code_before_it_gave(tmp_path: Path) -> None:
    """The old record stays until a good one takes its place, and was compared: "pass"."""
    old = [by("old", n) for n in range(3)]
    base = run_of(tmp_path / "base", *old, repeats=3)
    new = run_of(tmp_path / "new", *old, *(failed("new", n, day=2) for n in range(3)), repeats=3)
    assert shown(new) == [(n, "failed") for n in range(3)]
    (cell,) = rows.cells(new)
    assert cell["statuses"] == {"failed": 3}
    kept = reduce_run(new, ["tpot_s"])
    assert [one.status for one in kept.trials] == ["failed"] * 3
    assert compare_runs(reduce_run(base, ["tpot_s"]), kept, TPOT).verdict == "fail"


def test_copies_of_two_runs_are_no_more_repeats(tmp_path: Path) -> None:
    both = [by(code, n, day=day) for code, day in (("one", 2), ("two", 1)) for n in range(2)]
    run = run_of(tmp_path, *both, repeats=2)
    assert [s.record.environment["code"] for s in run.stored] == ["one", "one"]
    (cell,) = rows.cells(run)
    assert (cell["valid"], cell["repeats"]) == (True, 2)
    assert len(reduce_run(run, ["tpot_s"]).trials) == 2


def test_a_stand_in_and_another_machine_s_trial_are_no_doubles(tmp_path: Path) -> None:
    noisy, again = by("one", validity=NOISY), by("one", STAND_IN, day=2, validity=VALID)
    there = dataclasses.replace(by("one"), key="there", environment={"fingerprint": "there"})
    assert len(run_of(tmp_path, noisy, again, there).stored) == 3


def test_of_two_records_of_one_second_the_one_written_last_stands(tmp_path: Path) -> None:
    one, two = by("one"), by("two")
    store = run_of(tmp_path, one, two).store
    for late, early in ((one, two), (two, one)):
        for place, kept in enumerate((early, late)):
            os.utime(store.trials_folder / f"{kept.key}.parquet", (place, place))
        (found,) = results.load(tmp_path).stored
        assert found.record.key == late.key


def test_a_cell_that_two_versions_of_the_code_ran_is_not_valid(tmp_path: Path) -> None:
    """A run that was stopped after an edit told one time for both."""
    mixed = [by("new", 0, day=2, step_ms=6), *(by("old", n) for n in range(3))]
    run = run_of(tmp_path, *mixed, repeats=3)
    (cell,) = rows.cells(run)
    assert (cell["valid"], cell["statuses"]) == (False, {"ok": 3})
    assert "tpot_s_p50" in cell["void_metrics"]
    (reason,) = cell["invalid_reasons"]
    assert reason.startswith("code-changed: repeats of the cell were run by 2 versions of the code")
    assert {row["valid"] for row in rows.summaries(run)} == {False}
    with pytest.raises(UserError, match="half a run: repeats of gsm8k, closed c=8, demo: vllm"):
        reduce_run(run, ["tpot_s"])


def test_versions_apart_from_each_other_s_cells_are_no_fault(tmp_path: Path) -> None:
    """Another backend's code is another one, and machines are not pooled."""
    there = by("there", 0)
    there = dataclasses.replace(
        there, key="there", environment={"fingerprint": "there", "code": "there"}
    )
    fast = dataclasses.replace(by("fast"), key="fast", trial=trial("fast"))
    run = run_of(tmp_path, by("one", 0), by("one", 1), there, fast)
    told = [reason for row in rows.summaries(run) for reason in row["invalid_reasons"]]
    assert not [reason for reason in told if reason.startswith("code-changed")]
    check_whole(run)
