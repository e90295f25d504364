"""The fuzz script of benchmarks/: its cases can be made again; findings are told from refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.soundness import fuzz_inputs
from benchmarks.soundness.fuzz_inputs import CaseOutcome, attempt, build, names, report
from benchmarks.support.fuzz_catalogue import CATALOGUE
from harness.cli import run as running
from harness.core.errors import UserError


@pytest.mark.parametrize("case", ["structured:3", "bytewise:7", "data:5"])
def test_a_case_is_decided_by_its_name_and_the_seed(tmp_path: Path, case: str) -> None:
    made = []
    for seed in (0, 0, 1):
        folder = tmp_path / "case"
        folder.mkdir(exist_ok=True)
        build(case, seed, folder)
        made.append({path.name: path.read_bytes() for path in folder.iterdir()})
        for path in folder.iterdir():
            path.unlink()
    assert made[0] == made[1] != made[2]


def test_there_are_as_many_as_asked_for_and_the_whole_catalogue() -> None:
    found = names(2400, 300)
    assert len(set(found)) == len(found) == 2700 + len(CATALOGUE)
    assert {name.partition(":")[0] for name in found} == {
        *("catalogue", "structured", "bytewise", "data")
    }


def outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> str:
    def run(file: Path, **_: Any) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(running, "run_experiment", run)
    return attempt("case", tmp_path / "case.yaml").result


def test_whatever_is_no_refusal_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome(tmp_path, monkeypatch, None) == "accepted"
    assert outcome(tmp_path, monkeypatch, UserError("no")) == "refused"
    for error in (ValueError("x"), OSError(2, "x"), MemoryError(), KeyboardInterrupt()):
        assert outcome(tmp_path, monkeypatch, error) == "traceback"
    monkeypatch.setattr(fuzz_inputs, "LIMIT_S", -1.0)
    assert outcome(tmp_path, monkeypatch, None) == "too slow"
    monkeypatch.undo()
    (tmp_path / "run").mkdir()
    assert outcome(tmp_path, monkeypatch, None) == "wrote"


def test_a_finding_fails_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    fine = [CaseOutcome("a:1", "accepted", ""), CaseOutcome("a:2", "refused", "no", 2.0)]
    assert report(fine, 1) == 0
    assert report([*fine, CaseOutcome("a:3", "died", "exit code -11")], 1) == 1
    assert "FINDING a:3: died" in capsys.readouterr().out
