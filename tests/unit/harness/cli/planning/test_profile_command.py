"""`decodebench profile`: the demo model measured for `plan`, and bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.tetris import measured
from backends.tetris.profile import profile_from
from tests.support.harness.command import call

LOG: dict[str, Any] = {
    "after": [2, 4],
    "confidence": [[0.9, None], [0.1, 0.9], [0.1, 0.1], [0.1, 0.1]],
    "leaves": [[True, False], [False, True], [False, False], [False, False]],
}


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.json").write_text(json.dumps(LOG))


def test_a_measured_profile_is_planned_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--log", "log.json", "--batches", "1,4", "--device", "cpu", "--out", "p.json")
    assert call(monkeypatch, "profile", *given) == 0
    assert "profile: batch 4" in capsys.readouterr().err
    told = json.loads(Path("p.json").read_text())
    found = profile_from(told, "p.json")
    assert (found.layers, found.batch) == (8, 4)
    assert found.survival == (1, 1, 0.75, 0.75, *[0.5] * 5)
    assert found.ramps == (2, 4)
    fills = found.fill_ms["cpu"]
    assert fills[:2] == (0, 0)
    assert fills[2] == fills[3]
    assert sum(fills) > 0
    assert [count for count, _ in found.time_share["cpu"]] == [1, 4]
    for outside in (found.batch_ms["cpu"], found.stage_ms["cpu"]):
        assert [count for count, _ in outside] == [1, 4]
        assert all(0 < ms < 1000 for _, ms in outside)
    Path("c.yaml").write_text(yaml.safe_dump({"devices": {"cpu": 2}, "price": {"cpu": 1.0}}))
    asked = ("--profile", "p.json", "--cluster", "c.yaml", "--slo-ms", "60000", "--json")
    assert call(monkeypatch, "plan", *asked) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert stages[0]["layers"][0] == 0
    assert stages[-1]["layers"][1] == 8


@pytest.mark.parametrize("model", ["demo-sentiment", "demo-shapes"])
def test_a_classifier_is_measured_and_planned_with(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("harness.cli.planning.label_profile.ROWS", 12)
    monkeypatch.setattr("harness.cli.planning.label_profile.TURNS", 1)
    monkeypatch.setattr(measured, "RUNS", 3)
    given = ("--model", model, "--batches", "1,4", "--device", "cpu", "--out", "p.json")
    assert call(monkeypatch, "profile", *given) == 0
    told = json.loads(Path("p.json").read_text())
    found = profile_from(told, "p.json")
    depth = {"demo-sentiment": 8, "demo-shapes": 6}[model]
    assert (found.layers, found.batch, len(told["transfer_ms"])) == (depth, 4, depth - 1)
    assert found.ramps == tuple(range(1, depth))
    assert 1 > found.survival[1] > found.survival[-1]
    curves = (found.time_share, found.ramp_share, found.batch_ms, found.enter_ms, found.stage_ms)
    for curve in curves:
        assert [count for count, _ in curve["cpu"]] == [1, 4]
    for _, before in found.enter_ms["cpu"]:
        assert before > 0
    Path("c.yaml").write_text(yaml.safe_dump({"devices": {"cpu": 2}, "price": {"cpu": 1.0}}))
    asked = ("--profile", "p.json", "--cluster", "c.yaml", "--slo-ms", "60000", "--json")
    assert call(monkeypatch, "plan", *asked) == 0
    assert json.loads(capsys.readouterr().out)["stages"][-1]["layers"][1] == depth


def test_a_log_says_who_leaves_a_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cli.planning.label_profile.ROWS", 8)
    monkeypatch.setattr("harness.cli.planning.label_profile.TURNS", 1)
    monkeypatch.setattr(measured, "RUNS", 3)
    given = ("--model", "demo-sentiment", "--batches", "1", "--log", "log.json", "--out", "p.json")
    assert call(monkeypatch, "profile", *given) == 0
    found = profile_from(json.loads(Path("p.json").read_text()), "p.json")
    assert found.survival == (1, 1, 0.75, 0.75, *[0.5] * 5)
    assert found.ramps == (2, 4)


def test_a_decoder_needs_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "profile") == 2
    assert "--log: missing; only a classifier's ramps are asked here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--batches", "4,2"), "--batches: expected ascending numbers of 1 to 256, found '4,2'"),
        (("--batches", "x"), "--batches: expected ascending numbers of 1 to 256, found 'x'"),
        (("--shape", "0.2b"), "shape '0.2b': no such file, and not a name; did you mean '0.5b'?"),
        (("--dtype", "int8"), "--dtype: expected float32 or bfloat16, found 'int8'"),
        (("--threads", "0"), "--threads: expected 1 to 1024, found 0"),
        (("--threads", "20000"), "--threads: expected 1 to 1024, found 20000"),
        (("--device", " "), "--device: expected a name, found none"),
        (("--entropy", "0"), "--entropy: expected a number above 0, found 0"),
        (("--log", "none.json"), "none.json: cannot be read: no such file or directory"),
        (("--log", "last.json"), "last.json: expected a ramp before the last of 8 layers"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    last = {"after": [8], "confidence": [[0.5]], "leaves": [[True]]}
    Path("last.json").write_text(json.dumps(last))
    given = arguments if "--log" in arguments else ("--log", "log.json", *arguments)
    assert call(monkeypatch, "profile", *given) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert line in captured.err


@pytest.mark.parametrize(
    ("out", "why"), [("no/p.json", "No such file or directory"), (".", "is a folder")]
)
def test_where_it_cannot_be_written_nothing_is_measured(
    out: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*_: Any) -> None:
        pytest.fail("it was measured first")

    monkeypatch.setattr("harness.cli.planning.profile._told", told)
    assert call(monkeypatch, "profile", "--log", "log.json", "--out", out) == 2
    line = f"--out {out}: cannot be written: {why}; expected a file in a folder that is there"
    assert capsys.readouterr().err == f"decodebench: {line}\n"


@pytest.mark.parametrize(("width", "staged"), [(64, True), (72, False)])
def test_a_shape_is_measured_without_its_weights(
    width: int,
    staged: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the stages' kernels cannot take is measured all the same, but for the stages."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measured, "RUNS", 3)
    small = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": 128,
        "num_hidden_layers": 6,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 1280,
        "max_position_embeddings": 100,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
    }
    Path("config.json").write_text(json.dumps(small))
    given = ("--shape", "config.json", "--log", "log.json", "--batches", "1,2", "--out", "p.json")
    assert call(monkeypatch, "profile", *given) == 0
    found = profile_from(json.loads(Path("p.json").read_text()), "p.json")
    assert (found.layers, found.batch, found.ramps) == (6, 2, (2, 4))
    assert list(tmp_path.glob("decodebench/shapes/*/model.safetensors"))
    assert [count for count, _ in found.batch_ms["here"]] == [1, 2]
    assert bool(found.stage_ms) is staged
    assert ("profile: without stage_ms: " in capsys.readouterr().err) is not staged


def test_what_a_device_has_yet_to_do_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that hand nothing back return before a GPU has done them."""
    now, owed = [0.0], [0.0]

    def launch(seconds: float) -> None:
        now[0] += 1e-6
        owed[0] += seconds

    def wait() -> None:
        now[0], owed[0] = now[0] + owed[0], 0.0

    monkeypatch.setattr(measured, "wait_for_device", wait)
    monkeypatch.setattr("backends.tetris.measured.time.perf_counter", lambda: now[0])
    found = measured.lower_quartiles_ms([lambda: launch(2e-3), lambda: launch(5e-3)])
    assert found == pytest.approx([2.001, 5.001])


def test_a_transfer_takes_time_and_ends_its_process() -> None:
    import multiprocessing

    assert measured.transfer_ms(1 << 16) > 0
    assert multiprocessing.active_children() == []
