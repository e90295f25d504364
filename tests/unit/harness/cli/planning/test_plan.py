"""`decodebench plan`: its answer, its table, and what it refuses in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.harness import command

ROOT = Path(__file__).parents[5]
PROFILE: dict[str, Any] = {
    "layers": 4,
    "batch": 8,
    "survival": [1, 1, 0.5, 0.5, 0.25],
    "layer_ms": {"V100": [1, 1, 1, 1]},
    "ramp_ms": {"V100": 0},
    "transfer_ms": 0.5,
}
CLUSTER: dict[str, Any] = {"devices": {"V100": 3}, "price": {"V100": 2.0}}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("p.json").write_text(json.dumps(PROFILE))
    Path("c.yaml").write_text(yaml.safe_dump(CLUSTER))
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    return command.call(monkeypatch, "plan", *arguments)


def asked(*more: str) -> list[str]:
    return ["--profile", "p.json", "--cluster", "c.yaml", *more]


@pytest.mark.usefixtures("files")
def test_the_answer_has_the_keys_of_its_contract(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *asked("--slo-ms", "100", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("seconds") >= 0
    found.pop("baselines"), found.pop("refused")
    assert found == {
        "goodput_per_s": 8000.0,
        "latency_ms": 7.5,
        "cost": 6.0,
        "batch": 8,
        "stages": [
            {"layers": [0, 2], "device": "V100", "count": 2},
            {"layers": [2, 4], "device": "V100", "count": 1},
        ],
    }


@pytest.mark.usefixtures("files")
def test_a_plan_that_cannot_pay_is_told_beside_its_baselines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In place a batch takes 2 ms and half of 2: three devices give one each ms, as the plan does.
    Without the time of fewer inputs nothing is said of a batch that shrinks."""
    assert call(monkeypatch, *asked("--slo-ms", "100", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["baselines"]) == [
        "plain",
        "shrinking batch",
        "batch rule",
        "regrouping in place",
    ]
    assert found["baselines"]["shrinking batch"] is None
    plain = found["baselines"]["plain"]
    assert plain.pop("devices") == {"V100": 3}
    assert plain == pytest.approx({"goodput_per_s": 6000, "latency_ms": 4 / 3 + 4, "cost": 6})
    assert found["baselines"]["regrouping in place"]["goodput_per_s"] == pytest.approx(8000)
    assert found["refused"] is None
    Path("c.yaml").write_text(yaml.safe_dump({**CLUSTER, "devices": {"V100": 2}}))
    told = (
        "cannot pay: 4,000 a second predicted, 0.75 of what regrouping in place gives on these "
        "devices, 5,333.33"
    )
    assert call(monkeypatch, *asked("--slo-ms", "100", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["refused"] == told
    assert call(monkeypatch, *asked("--slo-ms", "100")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == told
    rows = {line.split("  ")[0].strip(): line.split() for line in lines if "V100" in line}
    assert rows["plain"][1:] == ["4,000", "1.00", "6", "ms", "4", "2", "×", "V100"]
    assert rows["regrouping in place"][3:5] == ["5,333.33", "0.75"]


@pytest.mark.usefixtures("files")
def test_the_table_draws_the_stages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *asked("--slo-ms", "100")) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if " stage " in line]
    assert rows == [
        ["stage", "1", "0–1", "2", "×", "V100", "1", "ms", "100%"],
        ["└─▶", "stage", "2", "2–3", "1", "×", "V100", "1", "ms", "50%"],
    ]
    assert "goodput 8,000 a second   latency 7.5 ms   cost 6   batch 8, one every 1 ms" in lines


@pytest.mark.usefixtures("files")
def test_every_option_reaches_the_planner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(*more: str) -> dict[str, Any]:
        assert call(monkeypatch, *asked("--json", *more)) == 0
        return dict(json.loads(capsys.readouterr().out))

    assert answer("--slo-ms", "7.5")["goodput_per_s"] == 8000
    assert answer("--slo-ms", "7.5", "--slack-ms", "0.5")["goodput_per_s"] == 6000
    assert answer("--slo-ms", "100", "--rate", "4000")["cost"] == 4
    assert answer("--slo-ms", "100", "--budget", "4")["cost"] == 4
    assert answer("--slo-ms", "100", "--min-cost", "--target", "2000")["cost"] == 2


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--slo-ms", "5"], "--slo-ms 5: no plan meets it; the smallest SLO that a plan meets is "
         "5.33334 ms"),
        (["--slo-ms", "5", "--rate", "1000", "--slack-ms", "1"], "--slo-ms 5: no plan meets it "
         "with a slack of 1 ms at --rate 1000; the smallest SLO that a plan meets is 13 ms"),
        (["--slo-ms", "10", "--rate", "1000"], "--slo-ms 10: no plan meets it at --rate 1000; the "
         "smallest SLO that a plan meets is 12 ms; a batch of 8 takes 8 ms to arrive: profile a "
         "smaller one, or plan for a higher rate (simulate --plan-rate)"),
        (["--slo-ms", "0"], "--slo-ms: expected a number above 0, found 0"),
        (["--slo-ms", "9", "--rate", "0"], "--rate: expected a number above 0, found 0"),
        (["--slo-ms", "9", "--rate", "-3"], "--rate: expected a number above 0, found -3"),
        (["--slo-ms", "9", "--budget", "1"], "--budget 1: pays for no device; one device costs 2 "
         "or more"),
        (["--slo-ms", "9", "--target", "1"], "--target: expected --min-cost beside it"),
        (["--slo-ms", "9", "--min-cost"], "--min-cost: expected --target beside it"),
        (["--slo-ms", "9", "--min-cost", "--target", "9000"], "--target 9000: not enough devices: "
         "the highest goodput is 8000 a second"),
        (["--slo-ms", "9", "--min-cost", "--target", "9000", "--budget", "4"], "--target 9000: not "
         "enough devices within the budget of 4: the highest goodput is 4000 a second"),
        (["--slo-ms", "9", "--min-cost", "--target", "9", "--rate", "8"], "--target 9: above "
         "--rate 8; a plan answers no more requests than arrive"),
        (["--slo-ms", "7", "--min-cost", "--target", "8000"], "--slo-ms 7: no plan meets it at "
         "--target 8000; the smallest SLO that a plan meets is 7.5 ms"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    told: str,
) -> None:
    assert call(monkeypatch, *asked(*more)) == 2
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", f"decodebench: {told}\n")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("profile", "cluster", "told"),
    [
        (None, "{}", "p.json: cannot be read: no such file or directory"),
        ("{", "{}", "p.json:1: not valid JSON: Expecting property name enclosed in double quotes"),
        ('{"a": 1, "a": 2}', "{}", "p.json: not valid JSON: the key 'a' stands twice"),
        ("[" * 100_000, "{}", "p.json: not valid JSON: "),
        ("", "{}", "p.json:1: not valid JSON: Expecting value"),
        ("[]", "{}", "p.json: expected a mapping with the keys layers, batch, survival"),
        ("same", None, "c.yaml: cannot be read: no such file or directory"),
        ("same", "devices: {", "c.yaml:1: "),
        ("same", "", "c.yaml: expected a mapping with the keys devices, price"),
        ("same", "{devices: {K80: 1}, price: {K80: 1}}", "c.yaml: the profile has no times of "
         "device kind 'K80'; expected one of: V100"),
        ("same", "{devices: {V100: 1}, price: {V100: -1}}", "c.yaml: price of 'V100': expected"),
        ("same", "{devices: {V100: 1}, pric: {V100: 1}}", "c.yaml: unknown key 'pric'; did you "
         "mean 'price'?"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    profile: str | None,
    cluster: str | None,
    told: str,
) -> None:
    for name, text in (("p.json", profile), ("c.yaml", cluster)):
        if text is None:
            Path(name).unlink()
        elif text != "same":
            Path(name).write_text(text)
    assert call(monkeypatch, *asked("--slo-ms", "9")) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"decodebench: {told}")


def test_the_example_of_the_documentation_answers_as_it_stands_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tetris.md").read_text()
    blocks = dict(re.findall(r"`([a-z]+\.(?:json|yaml))`:\n+```\w+\n(.*?)```", text, re.DOTALL))
    for name, content in blocks.items():
        Path(name).write_text(content)
    shown = re.search(r"```console\n\$ decodebench plan ([^\n]*)\n(\{.*?\})\n```", text, re.DOTALL)
    assert shown is not None
    assert call(monkeypatch, *shown[1].split()) == 0
    found, written = json.loads(capsys.readouterr().out), json.loads(shown[2])
    assert found.keys() == written.keys()
    assert {**found, "seconds": 0} == {**written, "seconds": 0}


@pytest.mark.usefixtures("files")
def test_with_a_log_survival_is_that_under_the_plans_own_cuts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half leave at either ramp, whatever the other one says: all but a quarter with both on."""
    says = [(one, other) for one in (True, False) for other in (True, False)]
    log = {"after": [1, 3], "confidence": [[0.5, 0.5]] * 4, "leaves": says}
    Path("log.json").write_text(json.dumps(log))
    assert call(monkeypatch, *asked("--slo-ms", "100", "--json", "--log", "log.json")) == 0
    found = json.loads(capsys.readouterr().out)
    # a first layer of 1 ms, and half of what comes after it by two devices
    assert found["goodput_per_s"] == pytest.approx(8000)
    assert {one["layers"][0] for one in found["stages"]} - {0} <= {1, 3}
    assert call(monkeypatch, *asked("--slo-ms", "100", "--log", "p.json")) == 2
    assert capsys.readouterr().err.startswith("decodebench: p.json: expected a mapping with the")


@pytest.mark.usefixtures("files")
def test_with_a_log_regrouping_in_place_has_the_leavers_of_its_own_cuts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One half leaves behind the first layer alone, the other behind the second. A cut at the
    second only would take 2 + 1.2 ms if the ramp before it were on; it is off, and half go on."""
    Path("p.json").write_text(json.dumps({**PROFILE, "ramp_ms": {"V100": 1.2}}))
    log = {
        "after": [1, 2],
        "confidence": [[0.5, 0.5]] * 2,
        "leaves": [[True, False], [False, True]],
    }
    Path("log.json").write_text(json.dumps(log))
    assert call(monkeypatch, *asked("--slo-ms", "1000", "--json", "--log", "log.json")) == 0
    found = json.loads(capsys.readouterr().out)["baselines"]["regrouping in place"]
    both_on = 1 + 1.2 + 0.5 * (1 + 1.2)
    assert found["goodput_per_s"] == pytest.approx(3 * 8e3 / both_on)
