"""Training of draft heads on a tiny model: what is written, what it is worth, what goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import backends
from backends.checkpoints import models
from backends.checkpoints.draft_heads.files import KINDS
from backends.seen import read_marks
from backends.training.drafts import display
from backends.training.drafts.report import walk
from backends.training.drafts.train import train_drafts
from harness.core.errors import UserError
from harness.core.nouns import Model
from tests.support.engine.tiny_heads import StandInKillError, killer

SMALL: dict[str, Any] = {"rows": 8, "epochs": 4, "batch": 3, "rate": 3e-3}


def train(kind: str, model: Path, out: Path, **changes: Any) -> dict[str, Any]:
    return train_drafts(kind, str(model), ["gsm8k"], out, **SMALL | changes)


@pytest.fixture(scope="module")
def heads(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    for kind, out in made.items():
        assert train(kind, model, out)["finished"]
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_falls_and_the_report_tells_it(kind: str, heads: dict[str, Path]) -> None:
    about = json.loads((heads[kind] / "draft_head.json").read_text())
    training, held_out = about["report"]["training"], about["report"]["held_out"]
    first, last = training["train_kl"][0], training["train_kl"][-1]
    assert all(later < earlier for earlier, later in zip(first, last, strict=True))
    assert len(held_out["all"]["acceptance"]) == 3
    assert 1 <= held_out["all"]["tokens_per_step"] <= 4
    assert held_out["all"] == held_out["gsm8k"]
    assert len(read_marks(about["prompt_marks"])) == SMALL["rows"]
    assert sorted(path.name for path in heads[kind].iterdir()) == [
        "config.json",
        "draft_head.json",
        "model.safetensors",
    ]
    lines = display.report_lines(about)
    assert "the best epoch was chosen by these answers" in lines[1]
    assert "tokens a step" in lines[2]
    assert len(lines) == 5


def test_names_and_shapes_of_eagle3_are_those_that_vllm_reads(
    model: Path, heads: dict[str, Path]
) -> None:
    config = models.read_config(heads["eagle3"])
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 3, 4]
    assert config["draft_vocab_size"] == config["vocab_size"] == 1280
    tensors = load_file(heads["eagle3"] / "model.safetensors")
    attention, feed_forward = "midlayer.self_attn", "midlayer.mlp"
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        "fc.weight": (32, 96),
        "norm.weight": (32,),
        "midlayer.hidden_norm.weight": (32,),
        "midlayer.input_layernorm.weight": (32,),
        "midlayer.post_attention_layernorm.weight": (32,),
        f"{attention}.q_proj.weight": (32, 64),
        f"{attention}.k_proj.weight": (16, 64),
        f"{attention}.v_proj.weight": (16, 64),
        f"{attention}.o_proj.weight": (32, 32),
        f"{feed_forward}.gate_proj.weight": (48, 32),
        f"{feed_forward}.up_proj.weight": (48, 32),
        f"{feed_forward}.down_proj.weight": (32, 48),
    }
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}


def test_names_and_shapes_of_medusa_are_those_that_vllm_reads(
    model: Path, heads: dict[str, Path]
) -> None:
    config = models.read_config(heads["medusa"])
    assert config["architectures"] == ["MedusaModel"]
    assert (config["medusa_num_heads"], config["original_lm_head"]) == (3, True)
    tensors = load_file(heads["medusa"] / "model.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        **{f"blocks.{draft}.layers.0.weight": (32, 32) for draft in range(3)},
        "lm_heads.0.weight": (1280, 32),
    }
    shared = load_file(model / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(tensors["lm_heads.0.weight"], shared)


def test_a_training_that_is_killed_or_out_of_time_ends_as_one_that_was_not(
    model: Path, heads: dict[str, Path], tmp_path: Path
) -> None:
    assert train("eagle3", model, tmp_path, minutes=0) == {"finished": False}
    for stage, at in (("hidden states, training", 0), ("epochs", 2)):
        with pytest.raises(StandInKillError):
            train("eagle3", model, tmp_path, progress=killer(stage, at), save_every_s=0)
    content = train("eagle3", model, tmp_path, minutes=0)
    assert (content["finished"], content["report"]["training"]["ended"]) == (False, "time is up")
    assert train("eagle3", model, tmp_path)["finished"] is True
    whole = load_file(heads["eagle3"] / "model.safetensors")
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        assert torch.equal(tensor, whole[name]), name


def test_a_step_ends_at_the_first_draft_that_is_wrong() -> None:
    right = torch.tensor(
        [[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 1, 1], [1, 0, 0], [1, 1, 0], [1, 0, 0]]
    ).bool()
    assert walk(right) == [(3, 2), (3, 0), (3, 1), (1, 1)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"drafts": 0}, "--drafts: expected 1 to 15, got 0"),
        ({"decay": 0.0}, "--decay: expected more than 0 and at most 1, got 0.0"),
        ({"rate": -1.0}, "--lr: expected a positive number"),
    ],
)
def test_bad_values_are_refused(
    changes: dict[str, Any], said: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        train("eagle3", model, tmp_path / "out", **changes)
    assert said in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_kind_is_left_alone(
    model: Path, heads: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="kind was medusa in the run begun there, expected eagle3"):
        train("eagle3", model, heads["medusa"])


def test_every_other_value_is_named_as_it_is_given(model: Path, heads: dict[str, Path]) -> None:
    begun = heads["eagle3"] / "draft_head.json"
    with pytest.raises(UserError) as caught:
        train("eagle3", model, begun.parent, rows=None, rate=0.1)
    assert str(caught.value) == (
        f"{begun}: the run begun there has --rows 8, --lr 0.003, this one no --rows, --lr 0.1; "
        "choose another folder or the same values"
    )
    options = {"gsm8k": {"prompt_limit": 400}}
    with pytest.raises(UserError) as caught:
        train("eagle3", model, begun.parent, workload_options=options)
    assert "has no --workload-option, this one --workload-option gsm8k.prompt_limit=400;" in str(
        caught.value
    )


def refused(options: dict[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        backends.warnings("vllm-speculative", Model("demo"), options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_head_of_another_target_is_refused(heads: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    for kind in KINDS:
        options = {"method": kind, "draft": str(heads[kind])}
        assert "draft_head.json: trained for another checkpoint (sha256 " in refused(options)
    foreign = tmp_path / "foreign"
    shutil.copytree(heads["eagle3"], foreign)
    (foreign / "draft_head.json").unlink()
    options = {"method": "eagle3", "draft": str(foreign)}
    assert "config.json: hidden_size: is 32; expected the model's 256" in refused(options)
    config = json.loads((foreign / "config.json").read_text()) | {"hidden_size": 256}
    for changes, said in (
        ({"vocab_size": 99}, "vocab_size: is 99; expected the model's 1280"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 5, 9]}, "9: expected 0 to 8, the model's"),
    ):
        (foreign / "config.json").write_text(json.dumps(config | changes))
        assert said in refused(options)
    (foreign / "config.json").write_text(json.dumps(config))
    assert "is a head of method eagle3, not medusa" in refused(options | {"method": "medusa"})


def test_more_drafts_than_medusa_heads_are_refused(heads: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    foreign = tmp_path / "foreign"
    shutil.copytree(heads["medusa"], foreign)
    (foreign / "draft_head.json").unlink()
    config = json.loads((foreign / "config.json").read_text()) | {"hidden_size": 256}
    (foreign / "config.json").write_text(json.dumps(config))
    options = {"method": "medusa", "draft": str(foreign)}
    backends.warnings("vllm-speculative", Model("demo"), options)
    assert "'drafts': is 4; expected at most 3" in refused(options | {"drafts": 4})
