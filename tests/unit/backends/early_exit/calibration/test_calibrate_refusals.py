"""What a calibration refuses, and what the one line says."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import backends
from backends.checkpoints import exit_heads
from backends.early_exit.sizes import named_sizes
from backends.engine.model.architecture import EngineError
from backends.engine.model.dimensions import tensor_shapes
from backends.training.exits.backbone import architecture_of
from harness.cli import calibrate as cli_calibrate
from harness.core.errors import UserError
from tests.support.exits.calibrating import DEMO, SETTINGS, run, wrong
from tests.support.exits.fake_exits import Opener


def test_too_few_prompts_are_refused_before_any_work(engines: Opener, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json", replace(SETTINGS, target=0.97))
    assert str(refused.value) == (
        "--rows: 80 prompts cannot show a quality of 0.97 with 95% confidence, even without a "
        "fault; 99 can (--rows 50), or take a lower --target"
    )
    with pytest.raises(UserError, match=r"20 groups of 4 prompts .* 59 can \(--rows 118\)"):
        run(tmp_path / "c.json", replace(SETTINGS, batch=4, target=0.95))
    with pytest.raises(UserError, match=r"quality of 0\.999999999 .* ten million cannot"):
        run(tmp_path / "c.json", replace(SETTINGS, target=1 - 1e-9))
    assert engines.opened == []


def test_when_nothing_is_accepted_the_line_says_what_would_be(
    engines: Opener, tmp_path: Path
) -> None:
    quality = 1 - sum(wrong(0.75)) / 80
    hard = replace(SETTINGS, target=quality - 0.02, grid=(0.75, 0.5))
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json", hard)
    line = str(refused.value)
    assert f"at 0.75, the highest, 80 prompts have {quality:.3f}" in line
    assert not (tmp_path / "c.json").exists()
    kept = tmp_path / "c.json.answers.jsonl"
    assert f"; on other prompts (--without {kept} and another --out) about " in line
    rows, target = line.split("--rows ")[1].split(")")[0], line.split("--target ")[1].split()[0]
    decoded = engines.decoded()
    lower = run(tmp_path / "c.json", replace(hard, target=float(target)))
    assert lower.thresholds[0] == 0.75
    assert engines.decoded() <= decoded + 80, "the highest threshold's answers were kept"
    assert int(rows) > 40
    with pytest.raises(UserError, match=r"--out\) --target [0-9.]+ or higher thresholds"):
        run(tmp_path / "c.json", replace(hard, target=quality + 0.02))


def test_an_engine_that_refuses_a_prompt_is_told_in_one_line(
    engines: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.core.nouns import Commit
    from tests.support.exits.fake_exits import FakeExits

    monkeypatch.setattr(
        FakeExits, "_commit", lambda _, name: Commit(name, (), "error", error="too long")
    )
    with pytest.raises(UserError, match=r"workload gsm8k, row \w+: too long"):
        run(tmp_path / "c.json")
    assert engines.opened[0].closed


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
            "too little memory (CUDA out of memory. Tried to allocate 2.00 GiB.); less is needed "
            "with --option max_model_len=N, --option kv_cache_gib=N or --option 'engine=",
        ),
        (
            RuntimeError("CUDA out of memory occurred when warming up sampler"),
            "too little memory (CUDA out of memory occurred",
        ),
        (MemoryError(), "too little memory (MemoryError)"),
        (
            ValueError("Free memory on device cuda:0 (3/80 GiB) on startup is less than desired"),
            "end what holds the memory, or give --option 'engine={gpu_memory_utilization: 0.5}'",
        ),
        (
            EngineError("position 9: the final head's logits are NaN"),
            "--dtype float32: position 9: the final head's logits are NaN; take --dtype bfloat16",
        ),
    ],
)
def test_what_an_engine_breaks_at_is_one_line_that_says_what_to_do(
    engines: Opener, tmp_path: Path, error: Exception, told: str
) -> None:
    def breaks() -> None:
        raise error

    engines.on_poll = breaks
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert engines.opened[0].closed


def test_what_is_no_lack_of_memory_stays_what_it_is(engines: Opener, tmp_path: Path) -> None:
    def breaks() -> None:
        raise RuntimeError("a mistake of ours")

    engines.on_poll = breaks
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        run(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"measure": "sofmax"}, "--measure: unknown measure 'sofmax'; did you mean 'softmax'?"),
        ({"measure": "static"}, "--measure: unknown measure 'static'"),
        ({"metric": "rouge"}, "--metric: unknown metric 'rouge'; did you mean 'rouge_l'?"),
        ({"decay": "exp"}, "--decay: unknown decay 'exp'"),
        ({"target": 0.0}, "--target: expected a number between 0 and 1, got 0"),
        ({"target": 1.0}, "--target: expected a number between 0 and 1, got 1"),
        ({"target": float("nan")}, "--target: expected"),
        ({"confidence": 95.0}, "--confidence: expected a number between 0 and 1, got 95"),
        ({"rows": 1}, "--rows: expected at least 2, got 1"),
        ({"batch": 0}, "--batch: expected at least 1, got 0"),
        ({"seed": -1}, "--seed: expected at least 0, got -1"),
        ({"tau": float("inf")}, "--decay-tau: expected"),
        ({"grid": (0.5, 1.0)}, "--grid: 1: expected thresholds from 0 to below 1"),
        ({"grid": (0.5, float("nan"))}, "--grid: nan"),
        ({"grid": (0.5, 0.5)}, "--grid: 0.5 is named twice"),
        ({"grid": ()}, "--grid: no threshold"),
        ({"heads": "mixed"}, "--heads: goes with --measure softmax, not state"),
        ({"classifier": "x"}, "--classifier: goes with --measure classifier, not state"),
        ({"measure": "softmax", "heads": "mixd"}, "did you mean 'mixed'?"),
        ({"measure": "classifier", "classifier": "x"}, "no folder 'x'"),
        ({"workloads": ("gsm",)}, "did you mean 'gsm8k'?"),
        ({"workloads": ("gsm8k", "gsm8k")}, "'gsm8k' is named twice"),
        ({"model": "dmo"}, "did you mean 'demo'?"),
        ({"source": "nowhere"}, "source 'nowhere' does not exist"),
    ],
)
def test_bad_settings_are_refused_before_any_work(
    engines: Opener, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError) as refused:
        run(tmp_path / "c.json", replace(SETTINGS, **change))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert engines.opened == []
    assert list(tmp_path.iterdir()) == []


def test_an_out_that_cannot_be_written_is_refused_before_any_work(
    engines: Opener, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "data.json").write_text(json.dumps({"my": "data"}))
    for name, told in (
        ("", "is a folder"),
        ("missing/c.json", "no folder"),
        ("notes.txt", "exists and is no calibration"),
        ("data.json", "exists and is no calibration"),
        ("notes.txt/c.json", "no folder"),
    ):
        with pytest.raises(UserError, match=told):
            run(tmp_path / name)
    assert engines.opened == []


def another_family(folder: Path) -> Path:
    shutil.copytree(DEMO, folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BloomForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_what_the_backend_refuses_leaves_no_answers_behind(engines: Opener, tmp_path: Path) -> None:
    model = str(another_family(tmp_path / "model"))
    with pytest.raises(UserError, match="architecture BloomForCausalLM is not"):
        run(tmp_path / "c.json", replace(SETTINGS, model=model))
    wrong_heads = tmp_path / "heads"
    shutil.copytree(exit_heads.BUNDLED / "mixed", wrong_heads)
    about = json.loads((wrong_heads / "heads.json").read_text())
    (wrong_heads / "heads.json").write_text(json.dumps(about | {"checkpoint": "0" * 64}))
    with pytest.raises(UserError, match="trained for another checkpoint"):
        run(tmp_path / "c.json", replace(SETTINGS, measure="softmax", heads=str(wrong_heads)))
    with pytest.raises(UserError, match="layer"):
        run(tmp_path / "c.json", replace(SETTINGS, layers=(2, 99)))
    assert not list(tmp_path.glob("c.json*"))
    assert engines.opened == []


def test_the_backends_warnings_are_handed_on(
    engines: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def warnings(*told: Any) -> list[str]:
        asked.append(told)
        return ["first", "second"]

    monkeypatch.setattr(backends, "warnings", warnings)
    heard: list[str] = []
    run(tmp_path / "c.json", warn=heard.append)
    assert heard == ["first", "second"]
    ((name, model, options),) = asked
    assert (name, model.name, options) == ("vllm-early-exit", "demo", SETTINGS.options())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}, "yarn"),
        ({"attention_bias": True}, "attention_bias"),
    ],
)
def test_a_model_that_vllm_alone_computes_is_calibrated_there(
    engines: Opener, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    model = Path(shutil.copytree(DEMO, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | change))
    settings = replace(SETTINGS, model=str(model))
    found = run(tmp_path / "c.json", settings, candidates=((2, 4), (3, 5)))
    assert found.layers == (2, 4)
    assert cli_calibrate._layers("all", str(model), None) == (1, 2, 3, 4, 5, 6, 7)
    with pytest.raises(UserError, match=words):
        run(tmp_path / "d.json", replace(settings, backend="own-early-exit"))


def test_a_size_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = json.loads((DEMO / "config.json").read_text())
    path.write_text(json.dumps(config | {"intermediate_size": "many"}))
    with pytest.raises(
        UserError, match=r"config\.json: intermediate_size: is 'many'; expected a pos"
    ):
        named_sizes(tmp_path)
    shape = architecture_of(DEMO)
    found = named_sizes(DEMO)
    assert (found.layers, found.positions) == (shape.layers, shape.positions)
    layer = [
        math.prod(s) for name, s in tensor_shapes(shape) if ".layers.0." in name and len(s) > 1
    ]
    assert found.head_layers == shape.vocabulary * shape.width / sum(layer)
