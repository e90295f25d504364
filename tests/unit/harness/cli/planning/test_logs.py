"""What `plan`, `simulate` and `profile` make of a log of ramps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli import main
from harness.cli.planning.told import MOST_BYTES
from tests.support.harness.command import call
from tests.unit.harness.cli.planning.test_simulate import PROFILE, files

__all__ = ["files"]
ASKED = ["--profile", "p.json", "--cluster", "c.yaml", "--slo-ms", "50"]


def write_log(after: list[int], leaves: list[list[bool]]) -> None:
    confidence = [[0.5] * len(after)] * len(leaves)
    log = {"after": after, "confidence": confidence, "leaves": leaves}
    Path("log.json").write_text(json.dumps(log))


def test_a_pipeline_that_is_planned_again_begins_with_the_plan_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With all three ramps on a quarter is left in front of the last layer, with any two of them a
    half: the plan by the one survival is not that by the other."""
    write_log([1, 2, 3], [[n == place for n in range(3)] for place in range(4)])
    asked = ["--requests", "200", "--clients", "9", "--window-s", "100", "--trace", "log.json"]
    assert call(monkeypatch, "simulate", *ASKED, *asked, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["stages"] for one in found["planned_again"]["plans"]] == [found["plan"]["stages"]]
    pipeline, again = found["systems"][:2]
    assert again["goodput_per_s"] == pytest.approx(pipeline["goodput_per_s"])


@pytest.mark.parametrize(("command", "option"), [("plan", "--log"), ("simulate", "--trace")])
def test_a_ramp_that_the_profile_does_not_have_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    option: str,
) -> None:
    Path("p.json").write_text(json.dumps({**PROFILE, "ramps": [2, 3]}))
    write_log([1, 2], [[True, True], [False, False]])
    assert call(monkeypatch, command, *ASKED, option, "log.json") == main.BAD_INPUT
    line = "log.json: after: the profile has no ramp behind layer 1"
    assert capsys.readouterr().err == f"decodebench: {line}\n"
    write_log([2], [[True], [False]])
    assert call(monkeypatch, command, *ASKED, option, "log.json") == 0


def test_a_classifier_reads_logs_as_long_as_a_decoder_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log([9], [[True], [False]])
    with Path("log.json").open("a") as file:
        file.write(" " * MOST_BYTES)
    given = ("--model", "demo-sentiment", "--batches", "1", "--log", "log.json")
    assert call(monkeypatch, "profile", *given) == main.BAD_INPUT
    assert "log.json: after: expected ascending ramps behind 1 to 8" in capsys.readouterr().err
