"""What a first look at the command line says."""

from __future__ import annotations

import pytest

from harness.cli import main as cli
from harness.cli.first.panels import PANELS
from harness.core.errors import UserError


def listed() -> list[str]:
    commands = [str(one.name) for one in cli.app.registered_commands]
    return commands + [str(one.name) for one in cli.app.registered_groups]


def test_every_command_stands_under_a_heading() -> None:
    names = [name for panel in PANELS.values() for name in panel]
    assert sorted(names) == sorted(listed())
    assert listed()[:5] == list(PANELS["Measure and look"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["show"], "Missing argument 'DIR'. See 'decodebench show --help'."),
        (["gate", "calibrate"], "See 'decodebench gate calibrate --help'."),
        (["quick", "--model", "demo"], "Missing option '--workload'. See 'decodebench quick"),
    ],
)
def test_what_is_missing_names_the_help(
    arguments: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["decodebench", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_nothing_at_all_is_answered_by_the_help_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["decodebench"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    found = capsys.readouterr()
    assert "Measure and look" in found.out
    assert found.err == ""


def test_a_list_can_be_of_one_alone_and_says_what_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.app(["list", "backends", "vllm-early-exit"], standalone_mode=False)
    told = capsys.readouterr().out
    assert "Iteration-level batched early exit inside vLLM: " in told
    assert "adadecode" not in told
    with pytest.raises(UserError, match="none is called 'demoo'; did you mean 'demo'"):
        cli.app(["list", "models", "demoo"], standalone_mode=False)
