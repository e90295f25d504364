"""The last step of `.ci/run`: what it holds a run against refuses one answer of another kind.

The run itself is that step's: here the record stands for it.
"""

from __future__ import annotations

import dataclasses
import shlex
import shutil
from pathlib import Path

from results.compare.gate.record_file import read_record, write_record
from results.compare.gate.reduced import ReducedRun
from tests.support.harness.command import here

ROOT = Path(__file__).parents[3]
RECORD = ".ci/gate/record.parquet"
PROGRAM = ".venv/bin/decodebench compare "


def asked(base: object, new: object) -> list[object]:
    """The comparison that `.ci/run` asks for, of these two."""
    (line,) = (x for x in (ROOT / ".ci/run").read_text().splitlines() if x.startswith(PROGRAM))
    first, _, *options = shlex.split(line.removeprefix(PROGRAM))
    assert first == RECORD
    return ["compare", base, new, *options]


def changed(run: ReducedRun) -> ReducedRun:
    """With another answer to one request, in each repeat."""
    trials = []
    for trial in run.trials:
        answers = trial.answers.copy()
        answers[0] += 1
        trials.append(dataclasses.replace(trial, answers=answers))
    return ReducedRun(run.where, trials)


def test_equal_answers_pass_and_one_other_of_24_is_refused(tmp_path: Path) -> None:
    same = shutil.copy(ROOT / RECORD, tmp_path / "same.parquet")
    done = here(*asked(RECORD, same), cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict: pass" in done.stdout
    other = tmp_path / "other.parquet"
    write_record(other, changed(read_record(ROOT / RECORD)))
    done = here(*asked(RECORD, other), cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lossless, yet 2 of 48 answers are not BASE's" in done.stdout
