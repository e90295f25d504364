"""The options of `vllm-early-exit`, read for a checkpoint; without loading vLLM."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from backends import check_options, pins, warnings
from backends.checkpoints import models
from backends.early_exit import options as plans
from backends.early_exit import register
from backends.early_exit.backend import VllmEarlyExit
from harness.core.errors import UserError
from harness.core.nouns import Measured, Model

NAME = "vllm-early-exit"
DEMO = Model("demo", dtype="bfloat16")


def told(model: Model = DEMO, **options: Any) -> list[str]:
    check_options(NAME, options)
    return warnings(NAME, model, options)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("expected numbers from 1 to 7", {"layers": [8]}),
        ("goes with softmax, state, classifier", {"measure": "static", "threshold": 0.5}),
        ("goes with softmax", {"measure": "state", "heads": "mixed"}),
        ("goes with classifier", {"measure": "state", "classifier": "x"}),
        ("give 'threshold' or 'thresholds'", {"threshold": 0.5, "thresholds": [0.5]}),
        ("give 'threshold' or 'calibration'", {"threshold": 0.5, "calibration": "some.json"}),
        ("'decay_tau' needs a 'decay'", {"decay_tau": 2.0}),
        ("expected at most 1000", {"decay": "calm", "decay_tau": float("inf")}),
        ("'layers' has no meaning with 'measure: never'", {"measure": "never", "layers": [2]}),
        ("cannot end early; expected PIECEWISE, FULL_AND_PIECEWISE (graphs of",
         {"engine": {"compilation_config": {"cudagraph_mode": "FULL"}}}),
        ("no folder 'mixde'; did you mean 'mixed'", {"heads": "mixde"}),
        ("no exit after layer 6; expected some of 1, 2, 3, 4",
         {"heads": "xsum", "layers": [6]}),
        ("no folder", {"measure": "classifier", "classifier": "nowhere"}),
        ("no file 'nowhere'", {"calibration": "nowhere"}),
        ("engine: quantization", {"engine": {"quantization": "fp8"}}),
        ("engine: speculative_config", {"engine": {"speculative_config": {}}}),
        ("speculative decoding do not go", {"engine": {"spec_method": "ngram", "spec_tokens": 3}}),
        ("load_format: dummy: on a CPU the fill", {"engine": {"load_format": "dummy"}}),
        ("one engine in one process", {"engine": {"data_parallel_size": 2}}),
        ("expected a mapping, got 3", {"engine": {"compilation_config": 3}}),
        ("vLLM has no argument 'max_seqs'", {"engine": {"max_seqs": 2}}),
        ("did you mean 'state'", {"measure": "stat"}),
        ("expected at most 1", {"threshold": 1.5}),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_an_engine_is_loaded(
    words: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError) as refusal:
        told(**options)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_vllm_finds_the_plugin_in_each_of_its_processes() -> None:
    (found,) = (
        point
        for point in entry_points(group="vllm.general_plugins")
        if point.name == "decodebench_early_exit"
    )
    assert found.load() is register


def test_a_threshold_that_never_passes_is_told() -> None:
    assert "can never be passed" in told(threshold=1, layers=[2])[0]


def test_what_state_compares_after_one_layer_is_told() -> None:
    (line,) = told(measure="state", layers=[4], threshold=0.5)
    assert "after layer 4 alone compares it with the embedding, and not with layer 3, as" in line
    assert told(measure="state", layers=[3, 4], threshold=0.5) == []
    assert told(measure="state", layers=[1], threshold=0.5) == [], "the layer before is none"
    assert told(measure="softmax", layers=[4], threshold=0.5) == []
    assert told(measure="state") == [], "the bundled calibration's layer is nobody's choice"


def test_a_bundled_calibration_that_does_not_hold_is_told() -> None:
    assert "calibrated with layers 3, 4, not 2, 4" in told(layers=[2, 4])[0]
    assert told(layers=[3, 4]) == []
    assert told(layers=[4, 3]) == []
    assert told(layers=[1, 2, 3, 4], calibration="rouge") == []
    assert told(layers=[2, 4], threshold=0.5) == []


def test_a_calibration_s_thresholds_stay_with_their_layers(tmp_path: Path) -> None:
    bundled = models.DEMO / "early_exit" / "calibration-softmax-rouge.json"
    told_apart = [0.1, 0.2, 0.3, 0.4]
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(json.loads(bundled.read_text()) | {"thresholds": told_apart}))
    settings = {name: option.default for name, option in VllmEarlyExit.OPTIONS.items()}
    for layers in ("auto", [4, 3, 2, 1]):
        wanted = {"layers": layers, "calibration": str(path)}
        plan = plans.ExitOptions(models.BUNDLED["demo"], settings | wanted)
        assert plan.policy.checks() == dict(zip((1, 2, 3, 4), told_apart, strict=True))


def plan_of(**options: Any) -> plans.ExitOptions:
    settings = {name: option.default for name, option in VllmEarlyExit.OPTIONS.items()}
    return plans.ExitOptions(models.BUNDLED["demo"], settings | options)


def test_a_changed_threshold_takes_the_place_of_those_before() -> None:
    """Between trials of one engine; the rest of the options stays."""
    listed = plan_of(layers=[2, 4], thresholds=[0.5, 0.6])
    single = listed.changed({"threshold": 0.7})
    assert single.policy.checks() == {2: 0.7, 4: 0.7}
    assert single.changed({"thresholds": [0.1, 0.2]}).policy.checks() == {2: 0.1, 4: 0.2}
    assert listed.changed({"layers": [3, 5]}).policy.checks() == {3: 0.5, 5: 0.6}


def test_a_statement_holds_for_the_dtype_that_it_was_made_in() -> None:
    plan = plan_of(measure="state")
    stated = plan.measured("bfloat16")
    assert "95% confidence" in str(stated.calibration)
    assert stated.calibration_batch == 1
    assert plan.measured("float32") == Measured()
    path = models.DEMO / "early_exit" / "calibration-state.json"
    assert plan.effective()["thresholds"] == json.loads(path.read_text())["thresholds"]
    assert plan_of(measure="state", threshold=0.1).measured("bfloat16") == Measured()


def test_a_calibration_of_another_dtype_or_backend_is_warned_of(tmp_path: Path) -> None:
    path = models.DEMO / "early_exit" / "calibration-state.json"
    options: dict[str, Any] = {"measure": "state", "calibration": str(path)}
    assert told(measure="state") == [], "the bundled one is nobody's choice"
    assert told(**options) == [
        f"backend 'vllm-early-exit': {path}: calibrated with own-early-exit 0.1.0"
    ]
    other = Model("demo", dtype="float32")
    assert len(told(other, **options)) == 2
    (line,) = told(other, measure="state")
    assert line == (
        f"backend 'vllm-early-exit': {path}: calibrated in bfloat16, not float32: its thresholds "
        "are used, and its statement does not hold"
    )
    assert told(other, measure="state", threshold=0.5) == []
    content = json.loads(path.read_text()) | {"backend": "vllm-early-exit 0.1"}
    own = tmp_path / "c.json"
    own.write_text(json.dumps(content))
    assert told(measure="state", calibration=str(own)) == []


def test_a_statement_names_the_workloads_that_it_speaks_of(tmp_path: Path) -> None:
    path = models.DEMO / "early_exit" / "calibration-state.json"
    names = list(json.loads(path.read_text())["prompts"])
    stated = plan_of(measure="state").measured("bfloat16")
    assert stated.calibration_limits == dict.fromkeys(names), "made before limits were stored"
    limits = {name: {"max_new_tokens": 99, "cut": 0.0} for name in names}
    own = tmp_path / "c.json"
    own.write_text(json.dumps(json.loads(path.read_text()) | {"workloads": limits}))
    stated = plan_of(measure="state", calibration=str(own)).measured("bfloat16")
    assert stated.calibration_limits == dict.fromkeys(names, 99)
    assert stated.calibration_data == {name: {"source": "bundled"} for name in names}


def test_a_statement_holds_without_a_cache_of_prompts() -> None:
    """Where later requests read what earlier ones' exits filled, texts are others."""
    plan = plan_of(measure="state", prefix_caching=True)
    assert plan.measured("bfloat16") == Measured()
    (line,) = told(measure="state", prefix_caching=True)
    assert "calibrated without prefix_caching: its thresholds are used" in line


def test_a_calibration_of_another_measure_is_refused() -> None:
    path = models.DEMO / "early_exit" / "calibration-state.json"
    with pytest.raises(UserError, match="calibrated for measure state, not softmax; calibrate"):
        plan_of(calibration=str(path))


def test_an_untested_vllm_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "TESTED_VLLM", ("0.0.1", "0.0.2"))
    assert "is untested; tested: 0.0.1, 0.0.2" in told(threshold=0.5)[-1]


def test_an_unknown_family_and_a_model_without_a_middle_are_refused(tmp_path: Path) -> None:
    for name, change, words in (
        (
            "qwen",
            {"architectures": ["Qwen2ForCausalLM"]},
            "architecture Qwen2ForCausalLM is not one",
        ),
        ("flat", {"num_hidden_layers": 1}, "no exit before its end"),
    ):
        folder = tmp_path / name
        shutil.copytree(models.BUNDLED["demo"], folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(UserError, match=words):
            warnings(NAME, Model(str(folder)), {"measure": "static"})


def test_heads_of_another_checkpoint_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(models.BUNDLED["demo"], folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 12345.0}))
    heads = models.DEMO / "heads" / "mixed"
    with pytest.raises(UserError, match="for another checkpoint"):
        warnings(NAME, Model(str(folder)), {"heads": str(heads), "layers": [2]})


def test_what_decides_the_numbers_is_part_of_the_key() -> None:
    plain = pins.files(NAME, DEMO, {"calibration": "none"})
    heads = pins.files(NAME, DEMO, {"calibration": "none", "heads": "mixed", "layers": [2]})
    other = pins.files(NAME, DEMO, {"calibration": "none", "heads": "xsum", "layers": [2]})
    assert plain == {}
    assert heads != {}
    assert heads != other
