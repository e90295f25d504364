"""EAGLE heads whose configuration names their target's architecture, as its authors publish them:
tensors tell what they are."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import backends
from backends.checkpoints import models
from backends.checkpoints.draft_heads.check import BUNDLED
from harness.core.errors import UserError
from harness.core.nouns import Model

DEMO = Model("demo")
NAMES = ["speculative"]
if importlib.util.find_spec("vllm") is not None:
    NAMES.append("vllm-speculative")


@pytest.fixture
def head(tmp_path: Path) -> Path:
    """The demo's, under another name and with a model's tokenizer beside it."""
    folder = tmp_path / "head"
    shutil.copytree(BUNDLED["eagle3"], folder)
    (folder / "draft_head.json").unlink()
    shutil.copy(models.BUNDLED["demo-draft"] / "tokenizer.json", folder)
    renamed(folder)
    return folder


def renamed(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    told = config | {"architectures": ["LlamaForCausalLM"]} | changes
    (folder / "config.json").write_text(json.dumps(told))


def refused(name: str, options: Mapping[str, Any]) -> str:
    with pytest.raises(UserError) as caught:
        backends.warnings(name, DEMO, options)
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_it_drafts_and_is_no_draft_model(name: str, head: Path) -> None:
    options = {"draft": str(head)}
    assert refused(name, options).endswith(
        f"{head}: is a head of method eagle3, not a model; say 'method: eagle3'"
    )
    assert backends.warnings(name, DEMO, options | {"method": "eagle3"}) == []


@pytest.mark.parametrize("name", NAMES)
def test_its_tensors_tell_the_kind(name: str, head: Path) -> None:
    renamed(head, draft_vocab_size=None)
    options = {"draft": str(head), "method": "eagle3"}
    tensors = load_file(head / "model.safetensors")
    first = {key.replace("midlayer.", "layers.0."): found for key, found in tensors.items()}
    mapped = {**first, "d2t": first["norm.weight"].clone()}
    for found, kind in ((tensors, "eagle3"), (mapped, "eagle3"), (first, "eagle")):
        save_file(found, head / "model.safetensors")
        said = refused(name, {"draft": str(head)})
        assert f"{head}: is a head of method {kind}, not a model" in said
    assert refused(name, options).endswith(f"{head}: is a head of method eagle, not eagle3")
    del first["fc.weight"]
    save_file(first, head / "model.safetensors")
    assert "LlamaForCausalLM is that of a whole model" in refused(name, options)


@pytest.mark.skipif("vllm-speculative" not in NAMES, reason="vLLM is not installed")
@pytest.mark.parametrize(
    ("method", "named", "taken"),
    [
        ("eagle", "LlamaForCausalLM", True),
        ("eagle", "MistralForCausalLM", True),
        ("eagle3", "MistralForCausalLM", False),
        ("eagle", "Qwen2ForCausalLM", False),
        ("eagle3", "Qwen3ForCausalLM", True),
    ],
)
def test_vllm_has_a_class_for_its_architecture(
    method: str, named: str, taken: bool, head: Path
) -> None:
    of_eagle3 = method == "eagle3"
    tensors = load_file(head / "model.safetensors")
    if not of_eagle3:
        tensors = {key.replace("midlayer.", "layers.0."): one for key, one in tensors.items()}
        save_file(tensors, head / "model.safetensors")
    changes = {} if of_eagle3 else {"draft_vocab_size": None}
    renamed(head, architectures=[named], **changes)
    options = {"draft": str(head), "method": method}
    if taken:
        assert backends.warnings("vllm-speculative", DEMO, options) == []
        return
    said = refused("vllm-speculative", options)
    assert said.endswith(
        f"{head}: the installed vLLM has no head Eagle{'3' * of_eagle3}{named}, for which it "
        f"would take it by its architecture, {named}"
    )


@pytest.mark.skipif("vllm-speculative" not in NAMES, reason="vLLM is not installed")
def test_a_medusa_head_under_a_path_that_vllm_takes_for_another_methods(tmp_path: Path) -> None:
    config = {"model_type": "medusa", "architectures": ["MedusaModel"], "medusa_num_heads": 3}
    target = json.loads((models.BUNDLED["demo"] / "config.json").read_text())
    for name in ("hidden_size", "vocab_size"):
        config[name] = target[name]
    for part in ("eagle3-vs-medusa", "plain"):
        folder = tmp_path / part
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        save_file({"0.blocks.0.linear.weight": torch.zeros(2, 2)}, folder / "model.safetensors")
    options = {"method": "medusa", "draft": str(tmp_path / "eagle3-vs-medusa")}
    assert "takes a draft under a path with 'eagle3' for a head; move or" in refused(
        "vllm-speculative", options
    )
    options["draft"] = str(tmp_path / "plain")
    assert backends.warnings("vllm-speculative", DEMO, options) == []
