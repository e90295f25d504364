"""Checkpoints on disk: shards, fused projections, and every way in which one can be wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from backends.engine.model.architecture import EngineError, read_architecture
from backends.engine.model.cache import KVCache
from backends.engine.model.weights import Weights, load_weights
from tests.support.engine.checkpoints import write_checkpoint

Tensors = dict[str, Tensor]
FIRST = "model.layers.0."


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("llama")
    write_checkpoint(directory, "llama")
    return directory


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """The checkpoint's configuration; the weights are up to the test."""
    (tmp_path / "config.json").write_text((original / "config.json").read_text())
    return tmp_path


@pytest.fixture
def tensors(original: Path) -> Tensors:
    return dict(load_file(original / "model.safetensors"))


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Weights:
    return load_weights(folder, read_architecture(folder), dtype)


def refusal(folder: Path, dtype: torch.dtype = torch.float32) -> str:
    with pytest.raises(EngineError) as caught:
        load(folder, dtype)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_projections_are_fused_and_cast(
    original: Path, tensors: Tensors, dtype: torch.dtype
) -> None:
    weights = load(original, dtype)
    layer = weights.layers[1]
    names = [f"model.layers.1.self_attn.{name}_proj.weight" for name in "qkv"]
    assert torch.equal(layer.qkv, torch.cat([tensors[name] for name in names]).to(dtype))
    mlp = [tensors[f"model.layers.1.mlp.{name}_proj.weight"] for name in ("gate", "up", "down")]
    assert torch.equal(layer.gate_up, torch.cat(mlp[:2]).to(dtype))
    assert torch.equal(layer.down, mlp[2].to(dtype))
    assert torch.equal(layer.input_norm, tensors["model.layers.1.input_layernorm.weight"])
    assert {layer.input_norm.dtype, layer.post_norm.dtype, weights.norm.dtype} == {torch.float32}
    assert layer.qkv_bias is layer.q_norm is layer.k_norm is None
    assert torch.equal(weights.head, tensors["lm_head.weight"].to(dtype))
    assert all(t.is_contiguous() for t in (layer.qkv, layer.gate_up, layer.out, weights.embedding))


def test_biases_and_head_norms(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "qwen2", "qwen2")
    stored = load_file(tmp_path / "qwen2" / "model.safetensors")
    names = [f"{FIRST}self_attn.{name}_proj.bias" for name in "qkv"]
    found = load(tmp_path / "qwen2").layers[0]
    assert found.qkv_bias is not None
    assert torch.equal(found.qkv_bias, torch.cat([stored[name] for name in names]))
    write_checkpoint(tmp_path / "qwen3", "qwen3")
    stored = load_file(tmp_path / "qwen3" / "model.safetensors")
    weights = load(tmp_path / "qwen3", torch.bfloat16)
    assert weights.layers[0].k_norm is not None
    assert torch.equal(weights.layers[0].k_norm, stored[f"{FIRST}self_attn.k_norm.weight"])
    assert weights.head is weights.embedding


def test_shards_are_one_checkpoint(original: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "llama", shards="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    whole, sharded = load(original), load(tmp_path)
    assert torch.equal(whole.head, sharded.head)
    for one, other in zip(whole.layers, sharded.layers, strict=True):
        assert torch.equal(one.qkv, other.qkv)
        assert torch.equal(one.down, other.down)
    shard = min(tmp_path.glob("model-*.safetensors"))
    shard.unlink()
    assert refusal(tmp_path) == f"{shard}: missing"


def test_files_without_an_index(folder: Path, tensors: Tensors) -> None:
    names = sorted(tensors)
    save_file({name: tensors[name] for name in names[:9]}, folder / "a.safetensors")
    save_file({name: tensors[name] for name in names[9:]}, folder / "b.safetensors")
    assert torch.equal(load(folder).norm, tensors["model.norm.weight"])
    save_file({names[0]: tensors[names[0]]}, folder / "c.safetensors")
    assert refusal(folder).endswith(f"c.safetensors: tensor {names[0]} is in another file too")


def test_stored_frequencies_and_a_tied_head_stored_twice_do_no_harm(
    folder: Path, tensors: Tensors
) -> None:
    tensors[FIRST + "self_attn.rotary_emb.inv_freq"] = torch.ones(6)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    save_file(tensors, folder / "model.safetensors")
    assert "lm_head.weight differs from model.embed_tokens.weight" in refusal(folder)
    tensors["lm_head.weight"] = tensors["lm_head.weight"].to(torch.int8)
    save_file(tensors, folder / "model.safetensors")
    assert "lm_head.weight differs from model.embed_tokens.weight" in refusal(folder)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors")
    weights = load(folder, torch.bfloat16)
    assert weights.head is weights.embedding


def replace(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: change(tensors[name]).contiguous()})


def spoil(name: str, value: float) -> Callable[[Tensors], object]:
    return lambda tensors: tensors[name].view(-1)[-1:].fill_(value)


DOWN, NORM = FIRST + "mlp.down_proj.weight", FIRST + "input_layernorm.weight"
WRONG: list[tuple[str, Callable[[Tensors], object]]] = [
    (f"tensor {DOWN} is missing; expected shape [48, 80]", lambda t: t.pop(DOWN)),
    (
        "tensor lm_head.weight is missing; expected shape [131, 48]",
        lambda t: t.pop("lm_head.weight"),
    ),
    (f"tensor {DOWN} has shape [80, 48], expected [48, 80]", replace(DOWN, lambda w: w.T)),
    (f"tensor {NORM} has shape [48, 1], expected [48]", replace(NORM, lambda w: w[:, None])),
    (
        "tensor model.layers.3.mlp.up_proj.weight is unknown to the architecture",
        lambda t: t.update({"model.layers.3.mlp.up_proj.weight": torch.ones(1)}),
    ),
    (
        f"tensor {FIRST}self_attn.q_proj.bias is unknown to the architecture",
        lambda t: t.update({FIRST + "self_attn.q_proj.bias": torch.ones(48)}),
    ),
    (f"tensor {DOWN} is I8: quantised weights are not read", replace(DOWN, Tensor.char)),
    (f"tensor {DOWN} holds NaN or infinite values", spoil(DOWN, torch.nan)),
    (f"tensor {NORM} holds NaN or infinite values", spoil(NORM, torch.inf)),
    (
        "tensor model.embed_tokens.weight holds NaN or infinite values",
        spoil("model.embed_tokens.weight", -torch.inf),
    ),
]


@pytest.mark.parametrize(("message", "change"), WRONG, ids=[message for message, _ in WRONG])
def test_a_wrong_tensor_is_named(
    folder: Path, tensors: Tensors, message: str, change: Callable[[Tensors], object]
) -> None:
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    assert refusal(folder).startswith(f"{folder}: {message}")


def test_the_first_bad_tensor_of_several_is_named(folder: Path, tensors: Tensors) -> None:
    for name in (NORM, "model.layers.2.mlp.up_proj.weight", "lm_head.weight"):
        spoil(name, torch.nan)(tensors)
    save_file(tensors, folder / "model.safetensors")
    assert f"tensor {NORM} holds" in refusal(folder)


def test_weights_that_float16_cannot_hold(folder: Path, tensors: Tensors) -> None:
    spoil(DOWN, 1e5)(tensors)
    save_file(tensors, folder / "model.safetensors")
    load(folder, torch.bfloat16)
    assert refusal(folder, torch.float16).endswith(f"{DOWN} holds values too large for float16")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", "version https://git-lfs", "not a safetensors file"),
        ("model.safetensors.index.json", "{", "expected a weight_map of tensors to files"),
        ("model.safetensors.index.json", '{"weight_map": [1]}', "expected a weight_map of tensors"),
        ("README.md", "", "no *.safetensors"),
    ],
)
def test_files_that_are_no_checkpoint(folder: Path, name: str, content: str, message: str) -> None:
    (folder / name).write_text(content)
    assert message in refusal(folder)


def test_the_cache_counts_its_bytes(original: Path) -> None:
    architecture = read_architecture(original)
    cache = KVCache.allocate(architecture, 3, 10, torch.bfloat16)
    assert cache.keys.shape == cache.values.shape == (3, 4, 2, 10, 12)
