"""Packed models: the same numbers as the tensors, straight from the files, and no second copy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from backends.engine.model import checkpoint, packed
from backends.engine.model.architecture import EngineError, read_architecture
from backends.engine.model.heads import ExitHead, folded
from backends.engine.model.packed import (
    PackedMatrix,
    PackedWeights,
    load_packed,
    packed_weights,
)
from backends.engine.model.weights import load_weights
from backends.kernels.cpu import native
from tests.support.engine.checkpoints import write_checkpoint
from tests.support.engine.resident import measured_memory

try:
    native.library()
except native.NativeUnavailableError as error:
    pytest.skip(f"no native kernels: {error}", allow_module_level=True)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def numbers(weights: PackedWeights) -> list[Tensor]:
    """Every packed number of a model, in order."""
    found = [weights.embedding.numbers, weights.head.numbers]
    for layer in weights.layers:
        found += [m.numbers for m in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["qwen3", "mistral"])
def test_a_model_is_packed_from_its_files_as_from_its_tensors(
    name: str, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of 16 rows, so that every matrix takes several."""
    write_checkpoint(tmp_path, name)
    shape = read_architecture(tmp_path)
    plain = load_weights(tmp_path, shape, dtype)
    expected = packed_weights(plain)
    monkeypatch.setattr(checkpoint, "PIECE_BYTES", 1)
    monkeypatch.setattr(packed, "PACKED_ROWS", 32)
    found = load_packed(tmp_path, shape, dtype)
    for one, other in zip(numbers(found), numbers(expected), strict=True):
        assert torch.equal(one, other)
    assert (found.head is found.embedding) == shape.tied
    assert torch.equal(found.head[:], plain.head)
    assert torch.equal(found.layers[1].down[:], plain.layers[1].down)
    assert torch.equal(found.norm, plain.norm)
    assert packed_weights(found) is found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_read_back(dtype: torch.dtype) -> None:
    matrix = torch.randn(37, 48).to(dtype)
    found = PackedMatrix.of(matrix, dtype)
    wanted = torch.tensor([36, 0, 17, 17])
    assert torch.equal(found[wanted], matrix[wanted])
    assert torch.equal(found[5:21], matrix[5:21])
    assert torch.equal(ExitHead(1, found).plain(), matrix)
    assert found.numbers.data_ptr() % 64 == 0
    assert found.numbers[37 * 48 // 48 // 16 * 16 * 48 :].count_nonzero() == 5 * 48


@pytest.mark.parametrize("size", [48, 37], ids=["transform", "own head"])
def test_an_exit_head_is_folded_into_the_form_of_the_final_head(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.engine.model.heads.CHUNK", 16)
    head, parameter = torch.randn(37, 48).bfloat16(), torch.randn(size, 48)
    found = folded(PackedMatrix.of(head, torch.bfloat16), parameter)
    assert torch.equal(found[:], folded(head, parameter))


def test_a_checkpoint_that_is_wrong_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "qwen3")
    shape = read_architecture(tmp_path)
    tensors = dict(load_file(tmp_path / "model.safetensors"))
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name][-1, 0] = torch.nan
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(EngineError, match=f"tensor {name} holds NaN or infinite values"):
        load_packed(tmp_path, shape, torch.bfloat16)
    save_file(dict(tensors, extra=torch.ones(1)), tmp_path / "model.safetensors")
    with pytest.raises(EngineError, match="tensor extra is unknown"):
        load_packed(tmp_path, shape, torch.bfloat16)
    write_checkpoint(tmp_path, "llama")
    with pytest.raises(EngineError, match="head_dim 12: the native kernels need"):
        load_packed(tmp_path, read_architecture(tmp_path), torch.bfloat16)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the resident memory")
def test_weights_are_resident_once(tmp_path: Path) -> None:
    """A tied model of 129 MB in bfloat16, stored in float32, and two executors of it."""
    width, inner, vocabulary = 512, 2048, 80_000
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": 6,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": vocabulary,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": True,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
    for index in range(6):
        prefix = f"model.layers.{index}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{norm}.weight"] = (width,)
        for part in "qkvo":
            tensors[f"{prefix}self_attn.{part}_proj.weight"] = (width, width)
        for part in ("gate", "up"):
            tensors[f"{prefix}mlp.{part}_proj.weight"] = (inner, width)
        tensors[f"{prefix}mlp.down_proj.weight"] = (width, inner)
    size = sum(2 * torch.Size(shape).numel() for shape in tensors.values())
    stored = {name: torch.ones(shape) for name, shape in tensors.items()}
    save_file(stored, tmp_path / "model.safetensors")
    found = measured_memory("weights", tmp_path)
    assert size < found["loaded"] < 1.15 * size
    assert found["opened"] < 1.2 * size
