"""Trials that ended well though requests of theirs failed: told, and run again when asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import run as running
from harness.cli.pins import OlderTrials, Pins, with_failures
from harness.core.errors import UserError
from harness.core.nouns import Trial, Validity
from harness.measure.machine.environment import environment
from harness.measure.sweep import SweepResult
from results.store.folder import Store
from tests.support.harness.command import call
from tests.support.harness.sessions import make_trial
from tests.unit.harness.cli.test_run import as_made_up, sweep, swept

FAILED = Validity(valid=False, reasons=("failures: 8 of 16 requests failed (first: r0: cut)",))
ASKED = make_trial()


def cut(folder: Path) -> str:
    """The server cut connections; the key of the trial."""
    _, (key,) = sweep(folder, "one", ASKED)
    Store(folder).write(replace(Store(folder).read(key), validity=FAILED))
    return key


def run_again(store: Store, *trials: Trial) -> SweepResult:
    with as_made_up("one"):
        return swept(store, trials)


def test_a_trial_with_failed_requests_runs_again_when_asked(tmp_path: Path) -> None:
    key = cut(tmp_path)
    assert run_again(Store(tmp_path), ASKED).stored == 1
    assert run_again(Store(tmp_path, retry_failures=True), ASKED).statuses["ok"] == 1
    assert Store(tmp_path).read_stored(key).record.validity != FAILED
    assert run_again(Store(tmp_path, retry_failures=True), ASKED).stored == 1


def test_half_the_answers_are_kept_where_none_came_this_time(tmp_path: Path) -> None:
    key = cut(tmp_path)
    store = Store(tmp_path, retry_failures=True)
    store.write(replace(store.read(key), status="failed", generations=()))
    assert store.read_stored(key).record.status == "ok"
    Store(tmp_path).write(replace(store.read(key), status="failed"))
    store.write(replace(store.read(key), status="timeout"))
    assert store.read_stored(key).record.status == "timeout"


def test_the_outcome_and_the_plan_name_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut(tmp_path)
    assert with_failures(Store(tmp_path), [ASKED]) == 1
    assert with_failures(Store(tmp_path), [make_trial(seed=5)]) == 0
    running._print_outcome(SweepResult(Counter({"ok": 1})), tmp_path, 1)
    assert capsys.readouterr().out == (
        "trials: 1 ok; requests failed in 1 of them (--retry-failures runs these again); "
        f"results in {tmp_path}\n"
    )
    with as_made_up("one"):
        notes = [
            OlderTrials(store, environment(), {ASKED.backend}, Pins()).note(ASKED)
            for store in (Store(tmp_path), Store(tmp_path, retry_failures=True))
        ]
    assert notes == ["stored", "runs again: requests of it failed"]


def test_the_option_reaches_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[bool]()

    def kept(path: Path, retry: bool) -> Store:
        asked.append(retry)
        return Store(path)

    monkeypatch.setattr(running, "Store", kept)
    file = tmp_path / "a.yaml"
    file.write_text(
        "{name: a, model: demo, backends: [scripted], workloads: [gsm8k], requests: 2, "
        "load: [{kind: closed, concurrency: 1}]}"
    )
    for option in ("--retry-failures", "--dry-run"):
        arguments = {option, "--dry-run", f"--out={tmp_path / 'run'}"}
        assert call(monkeypatch, "run", str(file), *arguments) == 0
    assert asked == [True, False]
    with pytest.raises(UserError, match="no --retry-failures"):
        running.run_experiment(
            file, out=None, only=None, fresh=False, dry_run=True, against="x", retry_failures=True
        )
