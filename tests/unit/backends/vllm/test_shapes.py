"""A checkpoint whose configuration is another's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.tiny_llama import CONFIG, write_tiny_llama

pytest.importorskip("torch")

from backends.vllm.shapes import check_shapes
from harness.core.errors import UserError

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
