"""A folder of the user's own is written to by nobody, and read as no run."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import main
from tests.support.harness.command import call

COMMANDS = [
    ("run", "experiment.yaml", "--out", "."),
    ("run", "experiment.yaml", "--out", ".", "--fresh"),
    ("quick", "--model", "demo", "--workload", "gsm8k", "--out", "."),
    ("show", "."),
    ("report", "."),
    ("history", "."),
    ("export", ".", "--out", "elsewhere"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: " ".join(one[:2]))
def test_where_init_has_written_there_is_no_run(
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "init") == 0
    for name in ("code", "logs", "prompts"):
        Path(name).mkdir()
        (Path(name) / "mine.txt").write_text(name)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert call(monkeypatch, *command) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert "is an experiment to be run ('decodebench run'), so . is no run folder" in told
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_home_is_meant_behind_the_sign_of_equality_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert main._at_home("--out=~/x") == "--out=/home/me/x"
    assert main._at_home("--out=~") == "--out=/home/me"
    for same in ("--out=~x/y", "--out", "~/x", "--label=a~", "a=~/x"):
        assert main._at_home(same) == same
