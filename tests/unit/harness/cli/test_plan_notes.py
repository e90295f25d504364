"""What a dry run says of trials that are stored, or that run again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends import pins as backend_pins
from harness.cli import run as running
from harness.cli import wiring
from harness.cli.pins import OlderTrials, Pins, changes, of_other_settings, whole_records
from harness.core.closure import Sources
from harness.core.nouns import Slo, Trial, TrialRecord
from harness.experiment.config import load_experiment
from harness.measure.machine.environment import environment, fingerprint
from results.store.folder import Store
from tests.support.harness.sessions import make_trial
from tests.unit.harness.cli.test_dry_run import dry_run
from tests.unit.harness.cli.test_run import sweep


def test_changes_are_told_in_a_line() -> None:
    old = {"a.py": "1", "b.py": "1", "c.py": "1"}
    assert changes(old, {**old, "b.py": "2"}) == "b.py changed"
    assert changes(old, {"a.py": "2", "b.py": "1", "d.py": "1"}) == (
        "a.py changed; d.py new; c.py gone"
    )
    many = {f"{letter}.py": "1" for letter in "edcba"}
    assert changes({}, many) == "a.py, b.py, c.py and 2 more new"


def note(folder: Path, trial: Trial, machine: Mapping[str, Any] | None = None) -> str:
    machine = environment() if machine is None else machine
    return OlderTrials(Store(folder), machine, {trial.backend}, Pins()).note(trial)


def as_code(code: Mapping[str, str]) -> Callable[[str, Sources], dict[str, str]]:
    return lambda name, sources: dict(code)


def test_a_dry_run_says_what_is_stored_and_why_the_rest_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = make_trial()
    sweep(tmp_path, "one", stored)
    monkeypatch.setattr(backend_pins, "code", as_code({"backends/made_up.py": "one"}))
    assert note(tmp_path, stored) == "stored"
    assert note(tmp_path, make_trial(seed=5)) == ""
    monkeypatch.setattr(backend_pins, "code", as_code({"backends/made_up.py": "two"}))
    assert note(tmp_path, stored) == "runs again: backends/made_up.py changed"
    monkeypatch.setattr(backend_pins, "code", as_code({"backends/made_up.py": "one", "b.py": "0"}))
    assert note(tmp_path, stored) == "runs again: b.py new"
    monkeypatch.setattr(backend_pins, "code", as_code({"backends/made_up.py": "one"}))
    monkeypatch.setattr(backend_pins, "files", lambda *_: {"mixed/heads.json": "0"})
    assert note(tmp_path, stored) == "runs again: mixed/heads.json new"


def test_a_dry_run_knows_other_machines_failures_and_old_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = make_trial()
    sweep(tmp_path, "one", stored)
    monkeypatch.setattr(backend_pins, "code", as_code({"backends/made_up.py": "one"}))
    machine = environment()
    other = {**machine, "cores": 99, "packages": {**machine["packages"], "torch": "0.1"}}
    expected = "runs again: other machine or set-up (cores, torch)"
    assert note(tmp_path, stored, other) == expected
    every = {**machine["packages"], "decodebench": "0", "numpy": "0", "ray": "0", "vllm": "0"}
    newer = {**machine, "packages": every}
    assert note(tmp_path, stored, newer).startswith("runs again: other machine or set-up (vllm, ")
    store = Store(tmp_path)
    ((key, _),) = whole_records(store)
    store.write(replace(store.read(key), status="timeout"))
    assert note(tmp_path, stored) == "runs again: its record says 'timeout'"
    store.write(replace(store.read(key), key="old"))
    store.remove(key)
    shutil.rmtree(tmp_path / "code")
    assert note(tmp_path, stored) == "runs again: its record does not say which code measured it"


def test_trials_of_another_set_up_are_told_of_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = make_trial()
    sweep(tmp_path, "one", stored)
    assert "set-up" not in capsys.readouterr().err
    machine = environment()

    def told(here: Mapping[str, Any]) -> str:
        return OlderTrials(Store(tmp_path), here, {stored.backend}, Pins()).of_others()

    assert told(machine) == ""
    elsewhere = {**machine, "variables": {**machine["variables"], "OMP_NUM_THREADS": "7"}}
    assert told(elsewhere) == (
        "1 stored trial of another machine or set-up (OMP_NUM_THREADS): kept, in rows of their own"
    )
    monkeypatch.setattr(running, "environment", lambda: elsewhere)
    sweep(tmp_path, "one", stored)
    assert "warning: 1 stored trial of another machine" in capsys.readouterr().err


def test_trials_of_the_experiment_before_a_change_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = make_trial()
    sweep(tmp_path, "one", stored)
    store = Store(tmp_path)

    def told(*changed: Trial) -> str:
        return of_other_settings(store, changed)

    assert told(stored) == told(stored, make_trial(repeat=1)) == ""
    assert told(replace(stored, backend="vllm")) == told(replace(stored, repeat=1)) == ""
    kept = ": kept, in rows of their own"
    assert told(replace(stored, slo=Slo(ttft_ms=9))) == (
        f"1 stored trial is of another objective (slo){kept}"
    )
    other = replace(stored, requests=99, workload=replace(stored.workload, checksum="0"))
    assert told(other) == (f"1 stored trial is of another set of prompts, number of requests{kept}")
    anew = replace(stored, reload=True)
    assert told(anew) == f"1 stored trial is of another way to load engines (reload){kept}"
    sweep(tmp_path / "anew", "one", anew)
    both = of_other_settings(Store(tmp_path / "anew"), [replace(stored, requests=99)])
    assert both.startswith("1 stored trial is of another number of requests, way to load engines")
    monkeypatch.setattr(wiring, "check_tokenizer", lambda model: None)
    shown = replace(stored, workload=replace(stored.workload, name="gsm8k"), slo=Slo(e2e_ms=1))
    planned = replace(shown, options={}, model=replace(stored.model, name="demo"))
    planned = replace(planned, load=replace(stored.load, concurrency=1))
    Store(tmp_path / "run").write(TrialRecord("a", planned, environment={}, status="ok"))
    Store(tmp_path / "run").write_experiment("name: tiny")
    dry_run(tmp_path)
    assert "warning: 1 stored trial is of another model, set of" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["", "{", "[]", "\0"])
def test_damaged_code_is_as_good_as_none_and_is_written_again(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    store.write_code("abc", {"a.py": "1"})
    assert store.read_code("abc") == {"a.py": "1"}
    (tmp_path / "code" / "abc.json").write_text(damage)
    assert store.read_code("abc") is None
    store.write_code("abc", {"a.py": "1"})
    assert store.read_code("abc") == {"a.py": "1"}


def test_the_plan_has_the_notes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wiring, "check_tokenizer", lambda model: None)
    dry_run(tmp_path)
    assert "again" not in capsys.readouterr().out
    file, store, pins = tmp_path / "tiny.yaml", Store(tmp_path / "run"), Pins()
    resolved = wiring.resolve(load_experiment(file, wiring.known()))
    (planned,) = resolved.trials()
    machine, code = fingerprint(environment()), pins.of(planned)
    store.write_experiment(resolved.to_yaml())
    store.write(
        TrialRecord(
            key=planned.key(machine, code),
            trial=planned,
            environment={"fingerprint": machine, "code": "before"},
            status="ok",
        )
    )
    dry_run(tmp_path)
    assert "repeat 0  stored\n" in capsys.readouterr().out
    (stored,) = store.keys()
    store.write_code("before", {**pins.parts(planned), "backends/scripted.py": "another"})
    store.write(replace(store.read(stored), key="older"))
    store.remove(stored)
    dry_run(tmp_path)
    assert "repeat 0  runs again: backends/scripted.py changed\n" in capsys.readouterr().out
