"""`decodebench simulate`: its answer, its table, and what it refuses in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli import main
from tests.support.harness import command
from tests.support.tetris.pretend_ray import PretendRay

ROOT = Path(__file__).parents[5]
PROFILE: dict[str, Any] = {
    "layers": 4,
    "batch": 2,
    "survival": [1, 1, 0.5, 0.5, 0.5],
    "layer_ms": {"V100": [1, 1, 1, 1]},
    "ramp_ms": {"V100": 0.1},
    "transfer_ms": 0.2,
    "time_share": {"V100": {"1": 0.9, "2": 1}},
}
CLUSTER: dict[str, Any] = {"devices": {"V100": 3}, "price": {"V100": 2.0}}
ASKED = ["--profile", "p.json", "--cluster", "c.yaml", "--requests", "2000"]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.json").write_text(json.dumps(PROFILE))
    Path("c.yaml").write_text(yaml.safe_dump(CLUSTER))


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    return command.call(monkeypatch, "simulate", *arguments)


def test_the_answer_has_every_system_and_says_that_it_is_simulated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *ASKED, "--slo-ms", "50", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["provenance"] == "simulation"
    assert [one["name"] for one in found["systems"]] == [
        "pipeline",
        "plain",
        "shrinking batch",
        "batch rule",
        "regrouping in place",
    ]
    assert {one["provenance"] for one in found["systems"]} == {"simulation"}
    assert found["systems"][0]["predicted_per_s"] == found["plan"]["goodput_per_s"]
    assert len(found["plan"]["stages"]) == 2


def test_the_table_sets_the_pipeline_against_each_baseline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *ASKED, "--slo-ms", "50", "--clients", "20") == 0
    told = capsys.readouterr().out
    assert re.search(r"plain +1,5\d\d", told)
    assert "simulation: 2,000 requests, no model ran" in told
    assert "plan: 0–1 on 2 × V100, 2–3 on 1 × V100" in told


def test_every_option_reaches_the_simulation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(*more: str) -> dict[str, Any]:
        assert call(monkeypatch, *ASKED, "--slo-ms", "50", "--json", *more) == 0
        return dict(json.loads(capsys.readouterr().out))

    def piped(*more: str) -> dict[str, Any]:
        return dict(answer(*more)["systems"][0])

    assert piped("--clients", "9")["clients"] == 9
    crowded = piped("--rate", "900")
    assert crowded["clients"] is None
    assert piped("--rate", "300", "--copies", "2")["within_slo"] > 0.95
    assert answer("--rate", "500", "--plan-rate", "900")["plan"]["goodput_per_s"] >= 900
    assert piped("--rate", "900", "--seed", "1") != crowded
    log = {"after": [2], "confidence": [[0.9]], "leaves": [[False]]}
    Path("t.json").write_text(json.dumps(log))
    nobody_leaves = piped("--trace", "t.json", "--clients", "20")
    stages = answer("--trace", "t.json")["plan"]["stages"]
    assert stages == [{"layers": [0, 4], "device": "V100", "count": 3}]
    assert nobody_leaves["goodput_per_s"] == pytest.approx(3 * 2 / 4e-3)  # 2 every 4 ms on each
    assert piped("--clients", "20")["goodput_per_s"] > 1_800


def test_a_log_is_cut_only_where_it_has_a_ramp(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On unlike devices a cut behind the ramp would look balanced, and nobody would leave there."""
    kinds = {"V100": [1, 1, 1, 1], "K80": [4, 4, 4, 4]}
    unlike = {
        "layer_ms": kinds,
        "ramp_ms": dict.fromkeys(kinds, 0),
        "transfer_ms": 0,
        "time_share": {kind: {"2": 1} for kind in kinds},
    }
    Path("p.json").write_text(json.dumps(PROFILE | unlike))
    counts = {"devices": dict.fromkeys(kinds, 1), "price": dict.fromkeys(kinds, 0)}
    Path("c.yaml").write_text(yaml.safe_dump(counts))
    log = {"after": [2], "confidence": [[0.9], [0.1]], "leaves": [[True], [False]]}
    Path("t.json").write_text(json.dumps(log))

    def ends(*more: str) -> list[int]:
        assert call(monkeypatch, *ASKED, "--slo-ms", "50", "--clients", "9", "--json", *more) == 0
        plan = json.loads(capsys.readouterr().out)["plan"]
        return [stage["layers"][1] for stage in plan["stages"]]

    assert ends() == [3, 4]
    assert ends("--trace", "t.json") in ([4], [2, 4])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rate", "5", "--clients", "3"], "--clients: closed loop; expected it or --rate"),
        (["--address", "host:1"], "--address: expected --live beside it"),
        (["--live", "--copies", "2"], "--live: expected one cluster, found --copies above 1"),
        (["--window-s", "1", "--copies", "2"], "--window-s: expected one cluster, found --copies"),
        (["--window-s", "0"], "--window-s: expected 0.1 or more, found 0"),
        (["--window-s", "1e-9"], "--window-s: expected 0.1 or more, found 1e-09"),
        (["--straggler", "V100-1"], "--straggler V100-1: expected DEVICE:TIMES or DEVICE:TIMES@S"),
        (["--straggler", "K80-0:2"], "no device 'K80-0'; expected V100-0 to V100-2"),
        (["--straggler", "V100-1:0.5"], "TIMES: expected a number of 1 or more, found '0.5'"),
        (["--straggler", "V100-1:2@x"], "SECONDS: expected a number of 0 or more, found 'x'"),
        (["--straggler", "V100-1:2", "--straggler", "V100-1:3"], "expected a device once"),
        (["--plan-rate", "5"], "--plan-rate: open loop; expected --rate beside it"),
        (["--rate", "0"], "--rate: expected a number above 0, found 0"),
        (["--rate", "9", "--plan-rate", "0"], "--plan-rate: expected a number above 0, found 0"),
        (["--requests", "0"], "--requests: expected a whole number of 1 to 10,000,000, found 0"),
        (["--copies", "3000"], "--copies: expected a whole number of 1 to 2,000, found 3000"),
        (["--clients", "1", "--copies", "2"], "--clients: expected a whole number of 2 to"),
        (["--clients", "4", "--copies", "3"], "--clients: expected as many for each of 3 copies"),
        (["--seed", "-1"], "--seed: expected a whole number of 0 to"),
        (["--trace", "no.json"], "no.json: cannot be read: no such file or directory"),
        (["--trace", "p.json"], "p.json: expected a mapping with the keys after, confidence"),
        (["--slo-ms", "1"], "--slo-ms 1: no plan meets it; the smallest SLO that a plan meets is"),
    ],
)
def test_bad_input_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    asked = [*ASKED, "--slo-ms", "50", *arguments]
    assert call(monkeypatch, *asked) == main.BAD_INPUT
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert told in lines[0]


@pytest.fixture
def nothing_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def compare(*_: Any) -> None:
        pytest.fail("it was simulated first")

    monkeypatch.setattr("backends.tetris.simulation.compare.compare", compare)


@pytest.mark.usefixtures("nothing_is_simulated")
def test_what_stands_in_the_way_of_live_is_told_before_the_simulation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("importlib.util.find_spec", lambda name: None)
        assert call(patched, *ASKED, "--slo-ms", "50", "--live") == main.BAD_INPUT
    assert "--live: Ray is not installed" in capsys.readouterr().err
    pytest.importorskip("ray")
    monkeypatch.setattr("backends.tetris.live.devices.ANSWERS_S", 1.0)
    live = ["--live", "--address", "127.0.0.1:9"]
    assert call(monkeypatch, *ASKED, "--slo-ms", "50", *live) == main.BAD_INPUT
    assert "--address 127.0.0.1:9: no Ray cluster answers" in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_is_simulated")
def test_more_live_devices_than_a_machine_has_room_for_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    Path("c.yaml").write_text(yaml.safe_dump({"devices": {"V100": 90}, "price": {"V100": 2.0}}))
    asked = [*ASKED, "--requests", "20000", "--slo-ms", "50", "--live"]
    assert call(monkeypatch, *asked) == main.BAD_INPUT
    told = capsys.readouterr().err
    assert "--live: expected at most 64 devices on this machine, a process each" in told
    assert "the plan has 90" in told


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> PretendRay:
    ray = PretendRay()
    for place in ("row.start_ray", "devices.check_ray"):
        monkeypatch.setattr(f"backends.tetris.live.{place}", lambda address: ray)
    return ray


def test_devices_that_died_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pretended: PretendRay
) -> None:
    asked = [*ASKED[:-1], "200", "--slo-ms", "50", "--clients", "9", "--live"]
    assert call(monkeypatch, *asked) == 0
    assert "live:" not in capsys.readouterr().out
    assert call(monkeypatch, *asked, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["live"] == {"replaced": 0, "run_again": 0, "dropped": 0}
    assert [one["name"] for one in found["systems"]][:2] == ["pipeline", "pipeline, live"]
    first = len(pretended.started)
    pretended.dies = lambda number, method: (number, method) == (first, "run")
    assert call(monkeypatch, *asked) == 0
    told = capsys.readouterr().out
    assert re.search(
        r"^live: 1 devices died and were replaced, [12] requests ran again$", told, re.M
    )


@pytest.mark.usefixtures("pretended")
def test_plans_change_and_a_straggler_is_left_out_simulated_and_live(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*ASKED[:-1], "600", "--slo-ms", "50", "--clients", "12", "--live"]
    asked += ["--window-s", "0.1", "--straggler", "V100-1:5@0.05"]
    assert call(monkeypatch, *asked, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    names = [one["name"] for one in found["systems"]]
    assert names[:3] == ["pipeline", "pipeline, planned again", "pipeline, live"]
    for told in (found["planned_again"], found["live"]):
        assert told["stragglers"] == ["V100-1"]
        assert sum(stage["count"] for stage in told["plans"][0]["stages"]) == 3
        assert sum(stage["count"] for stage in told["plans"][-1]["stages"]) == 2
    assert call(monkeypatch, *asked) == 0
    lines = capsys.readouterr().out
    assert re.search(
        r"^planned again: the plan changed at 0\.\d s.*; stragglers: V100-1$", lines, re.M
    )
    assert re.search(r"^live, planned again: the plan changed at", lines, re.M)


def test_more_decisions_than_memory_holds_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("backends.tetris.pipeline.leaving.MOST_DECISIONS", 4_000)
    assert call(monkeypatch, *ASKED, "--slo-ms", "50") == main.BAD_INPUT
    told = capsys.readouterr().err
    assert "--requests: expected at most 1,000 for a model of 4 layers, found 2000" in told


def test_a_profile_of_one_batch_size_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {key: value for key, value in PROFILE.items() if key != "time_share"}
    Path("p.json").write_text(json.dumps(told))
    assert call(monkeypatch, *ASKED, "--slo-ms", "50") == main.BAD_INPUT
    assert "p.json: the key 'time_share' is missing" in capsys.readouterr().err


@pytest.mark.parametrize("cluster", ["v100", "mixed"])
def test_the_papers_cluster_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cluster: str
) -> None:
    folder = ROOT / "docs/examples/tetris"
    files = ["--profile", str(folder / "bert_base.json")]
    files += ["--cluster", str(folder / f"{cluster}.yaml")]
    assert call(monkeypatch, *files, "--slo-ms", "100", "--requests", "20000", "--json") == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["systems"]}
    piped = found["pipeline"]
    assert piped["goodput_per_s"] == pytest.approx(piped["predicted_per_s"], rel=0.1)
    assert piped["goodput_per_s"] > found["plain"]["goodput_per_s"]


def test_pilots_that_were_left_out_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("backends.tetris.simulation.compare.PILOT_FREE", 0)
    monkeypatch.setattr("backends.tetris.simulation.compare.MOST_PILOTS", 1)
    assert call(monkeypatch, *ASKED, "--slo-ms", "50") == 0
    told = capsys.readouterr().out
    assert "nothing was chosen by them for pipeline, plain, shrinking batch, batch rule" in told
