"""The last step of `.ci/run`: this repository's own record refuses one answer of another kind."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest

from results.compare.gate.record_file import read_record, write_record
from results.compare.gate.reduced import ReducedRun
from tests.e2e.test_cli import decodebench

ROOT = Path(__file__).parents[3]
RECORD = ".ci/gate/record.parquet"
PROGRAM = ".venv/bin/decodebench"


def steps(run: Path) -> list[list[str]]:
    """What `.ci/run` asks of the program, with its own folder for the run."""
    lines = (ROOT / ".ci/run").read_text().splitlines()
    words = [shlex.split(line.replace("$run", str(run))) for line in lines]
    return [asked[1:] for asked in words if asked[:1] == [PROGRAM]]


def changed(run: ReducedRun) -> ReducedRun:
    """With another answer to one request, in each repeat."""
    trials = []
    for trial in run.trials:
        answers = trial.answers.copy()
        answers[0] += 1
        trials.append(dataclasses.replace(trial, answers=answers))
    return ReducedRun(run.where, trials)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("ci") / "run"
    measure, _ = steps(run)
    done = decodebench(*measure, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return run


def test_this_code_passes(measured: Path) -> None:
    _, compare = steps(measured)
    assert compare[:2] == ["compare", RECORD]
    done = decodebench(*compare, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: pass" in done.stdout


def test_one_other_answer_of_24_is_refused(measured: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    write_record(other, changed(read_record(ROOT / RECORD)))
    _, (name, _, *rest) = steps(measured)
    done = decodebench(name, other, *rest, cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lossless, yet 2 of 48 answers are not BASE's" in done.stdout
