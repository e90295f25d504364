"""Answers that a calibration keeps: taken up, asked again, or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.early_exit.calibration.calibrate import CalibrationProgress
from backends.early_exit.calibration.files import open_calibration
from harness.core.errors import UserError
from tests.support.exits.calibrating import DEMO, GRID, SETTINGS, run
from tests.support.exits.fake_exits import Opener


class KilledError(BaseException):
    """Stands for Ctrl-C or a kill: nothing in the project catches it."""


@pytest.mark.parametrize("polls", [5, 900, 2000, 3500])
def test_what_was_answered_before_a_kill_is_not_answered_again(
    engines: Opener, tmp_path: Path, polls: int
) -> None:
    plain = run(tmp_path / "plain.json")
    once = engines.decoded()
    left = iter(range(polls))

    def die() -> None:
        if next(left, None) is None:
            raise KilledError

    engines.on_poll = die
    with pytest.raises(KilledError):
        run(tmp_path / "c.json")
    assert engines.opened[-1].closed
    engines.on_poll = lambda: None
    assert run(tmp_path / "c.json") == plain
    assert once <= engines.decoded() - once <= once + 1


def test_a_line_that_a_kill_cut_short_is_dropped(engines: Opener, tmp_path: Path) -> None:
    plain = run(tmp_path / "c.json")
    answers = tmp_path / "c.json.answers.jsonl"
    before = answers.read_bytes()
    answers.write_bytes(before[:-9])
    decoded = engines.decoded()
    assert run(tmp_path / "c.json") == plain
    assert engines.decoded() == decoded + 1
    assert answers.read_bytes() == before


def test_another_question_to_the_same_answers_needs_no_engine(
    engines: Opener, tmp_path: Path
) -> None:
    found = run(tmp_path / "c.json")
    some: dict[str, Any] = {"grid": GRID[:2]}
    for change in ({}, {"target": 0.5, **some}, {"confidence": 0.9, **some}):
        again = run(tmp_path / "c.json", replace(SETTINGS, **change))
        assert (again == found) == (not change)
    assert len(engines.opened) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 3}, "seed was 10000 in the calibration begun there, now it is 3"),
        ({"rows": 41}, "rows was 40"),
        ({"batch": 2}, "batch was 1"),
        ({"layers": (2,)}, "layers was auto in the calibration begun there, now it is 2"),
        ({"decay": "calm"}, "decay was none"),
        ({"workloads": ("gsm8k",), "rows": 80}, "workloads was gsm8k,xsum"),
        ({"measure": "softmax"}, "measure was state"),
    ],
)
def test_answers_to_something_else_are_not_taken_up(
    engines: Opener, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    run(tmp_path / "c.json")
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json", replace(SETTINGS, **change))
    assert told in str(refused.value)
    kept = tmp_path / "c.json.answers.jsonl"
    assert f"another --out, and other prompts with --without {kept} (on" in str(refused.value)
    assert "delete" not in str(refused.value)
    assert len(engines.opened) == 1


@pytest.mark.parametrize("text", ["x\n", "[]\n", "{}\n", '{"format": 1}\n', "\xff\xfe\n"])
def test_a_foreign_answer_file_is_refused(engines: Opener, tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json.answers.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="line 1 was not written by this command"):
        run(tmp_path / "c.json")
    assert (tmp_path / "c.json.answers.jsonl").read_bytes() == text.encode("latin-1")


def test_two_calibrations_do_not_write_one_file(engines: Opener, tmp_path: Path) -> None:
    refused: list[str] = []

    def second(_: CalibrationProgress) -> None:
        if not refused:
            with pytest.raises(UserError) as error:
                run(tmp_path / "c.json")
            refused.append(str(error.value))

    run(tmp_path / "c.json", progress=second)
    assert "another calibration is writing into it" in refused[0]


def test_choices_on_the_same_answers_are_counted_and_stated(
    engines: Opener, tmp_path: Path
) -> None:
    out = tmp_path / "c.json"
    with pytest.raises(UserError, match="no threshold holds"):
        run(out, replace(SETTINGS, target=0.8, grid=(0.6, 0.5)))
    changes: list[dict[str, Any]] = [
        {"grid": GRID[:2]},
        {"target": 0.5, "grid": GRID[:2]},
        {"confidence": 0.9},
    ]
    for number, change in enumerate(changes, start=1):
        found = run(out, replace(SETTINGS, **change))
        assert found.earlier_choices == number
        choices = f"{number} earlier choice{'s' * (number > 1)} on these prompts"
        assert found.statement.endswith(f"; after {choices}, not corrected for.")
        assert json.loads(out.read_text())["earlier_choices"] == number
        assert open_calibration(out, DEMO) == found
    for change in (changes[2] | {"whole_curve": True}, changes[0]):
        again = run(out, replace(SETTINGS, **change))
        assert again.earlier_choices == 3, "the same question is no further choice"
    fresh = run(tmp_path / "fresh.json", replace(SETTINGS, seed=7))
    assert fresh.earlier_choices == 0
    assert "earlier" not in fresh.statement


@pytest.mark.parametrize(
    ("line", "change", "told"),
    [
        ("group", {"answers": []}, "0 answers in a group of 1"),
        ("group", {"answers": [["a"]]}, "expected lists of token ids"),
        ("group", {"answers": [[-1]]}, "expected lists of token ids"),
        ("group", {"answers": [[2**70]]}, "expected lists of token ids"),
        ("group", {"answers": "x"}, "expected lists of token ids"),
        ("group", {"threshold": "0.9"}, "threshold '0.9'"),
        ("group", {"threshold": [1]}, "threshold [1]"),
        ("group", {"group": [0]}, "group [0]"),
        ("group", {"steps": "many"}, "steps 'many'"),
        ("group", {"steps": 10**400}, "int too large"),
        ("group", {"layers_run": float("nan")}, "layers_run nan"),
        ("opened", {"opened": {"backend": "x"}}, "'layers'"),
        ("opened", {"opened": {"backend": "x", "layers": "24"}}, "layers '24'"),
        ("opened", {"opened": {"backend": 1, "layers": [2]}}, "backend 1"),
        ("opened", {"question": {}}, "answers before what gave them"),
        ("question", {"question": 5}, "not iterable"),
    ],
)
def test_a_damaged_line_is_told_and_nothing_is_destroyed(
    engines: Opener, tmp_path: Path, line: str, change: dict[str, Any], told: str
) -> None:
    run(tmp_path / "c.json")
    path = tmp_path / "c.json.answers.jsonl"
    lines = path.read_text().splitlines()
    number = next(i for i, text in enumerate(lines) if f'"{line}"' in text)
    content = change if line != "group" else json.loads(lines[number]) | change
    lines[number] = json.dumps(content)
    damaged = "\n".join(lines) + "\n"
    path.write_text(damaged)
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json")
    assert f"{path}: line " in str(refused.value)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert path.read_text() == damaged
    assert len(engines.opened) == 1


@pytest.mark.parametrize("text", ["my notes, without an end of line", '{"format":2', "x\ny"])
def test_a_foreign_file_without_a_last_newline_is_kept(
    engines: Opener, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "c.json.answers.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match="line 1 was not written by this command"):
        run(tmp_path / "c.json")
    assert path.read_text() == text
    assert engines.opened == []


def test_a_first_line_that_a_kill_cut_short_is_written_again(
    engines: Opener, tmp_path: Path
) -> None:
    plain = run(tmp_path / "c.json")
    path = tmp_path / "c.json.answers.jsonl"
    whole = path.read_text()
    path.write_text(whole[:90])
    assert run(tmp_path / "c.json") == plain
    assert path.read_text() == whole
