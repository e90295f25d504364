"""A checkpoint whose configuration is another's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.tiny_llama import CONFIG, write_tiny_llama

pytest.importorskip("torch")

import torch

import backends
from backends.checkpoints import models
from backends.vllm import shapes
from backends.vllm.shapes import check_shapes
from harness.core.errors import UserError
from harness.core.nouns import Model
from tests.support.small_shapes import small_shape

FILE = "model.safetensors"
NARROW = {"intermediate_size": 256}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"), tokenizer=False, layers=1)


def check(model: Path, changed: dict[str, Any], **arguments: Any) -> None:
    (model / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 1, **changed}))
    check_shapes({"model": str(model), **arguments})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (NARROW, "mlp.gate_proj.weight has shape [512, 256], and config.json asks for [256, 256]"),
        (
            {"num_key_value_heads": 1},
            "self_attn.k_proj.weight has shape [128, 256], and config.json asks for [64, 256]",
        ),
    ],
)
def test_a_wider_matrix_than_the_configuration_has_is_refused(
    model: Path, changed: dict[str, Any], said: str
) -> None:
    """vLLM loads its beginning, and answers something else."""
    with pytest.raises(UserError) as caught:
        check(model, changed)
    assert str(caught.value) == f"{model}: tensor model.layers.0.{said}"
    with pytest.raises(UserError):
        check(model, changed, hf_overrides={"rope_theta": 5e5, "max_position_embeddings": 256})


@pytest.mark.parametrize(
    ("changed", "arguments"),
    [
        ({}, {}),
        ({}, {"hf_overrides": {"architectures": ["EarlyExitLlamaForCausalLM"]}}),
        (NARROW, {"load_format": "dummy"}),
        (NARROW, {"hf_overrides": {"intermediate_size": 512}}),
        (NARROW, {"hf_config_path": "elsewhere"}),
        (NARROW, {"load_format": "sharded_state"}),
        ({**NARROW, "architectures": ["OtherForCausalLM"]}, {}),
        ({**NARROW, "quantization_config": {"quant_method": "gptq"}}, {}),
    ],
)
def test_what_fits_or_is_not_known_here_is_vllms_to_judge(
    model: Path, changed: dict[str, Any], arguments: dict[str, Any]
) -> None:
    check(model, changed, **arguments)


def test_numbers_that_are_packed_are_vllms_to_judge(model: Path, tmp_path: Path) -> None:
    """ModelOpt's four bits keep the names of matrices, and halve their columns."""
    tensors = load_file(model / FILE)
    name = "model.layers.0.self_attn.q_proj.weight"
    rows, columns = tensors[name].shape
    save_file({**tensors, name: np.zeros((rows, columns // 2), np.uint8)}, tmp_path / FILE)
    check(tmp_path, {})
    (tmp_path / "hf_quant_config.json").write_text("{}")
    check(tmp_path, NARROW)


@pytest.fixture
def of_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Model]:
    """A shape with heads of that size, in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda size: small_shape(tmp_path / str(size), head_dim=size)


@pytest.mark.skipif(torch.cuda.is_available(), reason="of vLLM on a CPU")
@pytest.mark.parametrize("name", ["vllm", "vllm-early-exit", "vllm-speculative"])
def test_heads_that_no_kernel_takes_are_refused_before_anything_is_loaded(
    name: str, of_heads: Callable[[int], Model]
) -> None:
    """48 is not on vLLM's own list, and runs."""
    options = {"replay": {"acceptance": 0.5} if name == "vllm-speculative" else "demo"}
    for size in (48, 64):
        backends.warnings(name, of_heads(size), options)
    for size in (120, 144):
        with pytest.raises(UserError) as caught:
            backends.warnings(name, of_heads(size), options)
        line = str(caught.value)
        assert line.startswith(f"backend '{name}': ")
        assert f"config.json: head_dim {size}: vLLM's attention on a CPU has no kernel" in line
        assert "expected one of 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512" in line


def test_heads_of_another_configuration_are_not_judged(of_heads: Callable[[int], Model]) -> None:
    overrides = {"hf_overrides": {"head_dim": 64}}
    assert backends.warnings("vllm", of_heads(120), {"engine": overrides}) == []


@pytest.mark.parametrize("name", ["vllm", "vllm-early-exit", "vllm-speculative"])
def test_kernels_are_asked_beforehand_alone_and_on_a_cpu(
    name: str, of_heads: Callable[[int], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking takes longer than loading, whose time is told."""
    model = of_heads(120)
    options = {"replay": {"acceptance": 0.5} if name == "vllm-speculative" else "demo"}
    monkeypatch.setattr(shapes, "_cpu_head_sizes", lambda: (64,))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"head_dim 120.* expected one of 64$"):
        backends.warnings(name, model, options)
    monkeypatch.setattr(backends.load_class(name), "open", lambda *_: None)
    backends.open_backend(name, models.resolve(model), model, options)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    backends.warnings(name, model, options)
