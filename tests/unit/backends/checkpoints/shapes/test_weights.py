"""Random weights: the same numbers everywhere, in the range of trained models."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.checkpoints import models, weight_files
from backends.checkpoints.shapes import weights
from backends.checkpoints.shapes.folder import read_shape
from backends.checkpoints.shapes.weights import Tensor, tensors, values, write_weights
from harness.core.nouns import Model
from tests.support.small_shapes import small_shape


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def numbers(tensor: Tensor) -> np.ndarray[Any, Any]:
    bits = np.concatenate([*values(tensor)])
    return (bits.astype(np.uint32) << 16).view(np.float32)


def test_the_numbers_are_these_on_every_machine() -> None:
    """Written down once; another processor, numpy or libm must give the same bits."""
    found = np.concatenate([*values(Tensor("model.layers.0.mlp.up_proj.weight", (5, 3), 0.02))])
    assert found.tolist() == PINNED
    whole = b"".join(
        piece.astype("<u2").tobytes() for piece in values(Tensor("a", (1001, 37), 0.125))
    )
    assert hashlib.sha256(whole).hexdigest()[:16] == PINNED_DIGEST


def test_numbers_are_normal_with_the_deviation_asked_for() -> None:
    found = numbers(Tensor("a", (512, 2048), 0.02)).astype(np.float64)
    assert abs(found.mean()) < 1e-4
    assert found.std() == pytest.approx(0.02, rel=0.01)
    assert np.mean(np.abs(found) < 0.02) == pytest.approx(0.6827, abs=0.005)
    assert found.max() < 0.02 * 4.5


def test_pieces_are_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = Tensor("a", (1000, 3), 0.1)
    whole = numbers(tensor)
    monkeypatch.setattr(weights, "CHUNK_VALUES", 128)
    assert np.array_equal(numbers(tensor), whole)
    assert not np.array_equal(numbers(Tensor("b", (1000, 3), 0.1)), whole)


@pytest.mark.parametrize("architecture", ["Llama", "Qwen2", "Qwen3", "Mistral"])
def test_transformers_finds_every_tensor_and_none_too_many(
    architecture: str, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    kind: dict[str, Any] = {
        "architectures": [f"{architecture}ForCausalLM"],
        "model_type": architecture.lower(),
    }
    found = models.resolve(small_shape(tmp_path, **kind, tie_word_embeddings=False))
    model, told = AutoModelForCausalLM.from_pretrained(found, output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert (
        counted
        == read_shape(small_shape(tmp_path, **kind, tie_word_embeddings=False)).sizes.parameters
    )


def test_hidden_states_of_the_smallest_shape_are_in_the_range_of_trained_ones() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    folder = models.resolve(Model("0.1b", shape=True))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    seen: dict[str, torch.Tensor] = {}
    model.model.norm.register_forward_pre_hook(lambda _, given: seen.update(x=given[0].float()))
    ids = torch.arange(5, 125).reshape(2, 60)
    with torch.no_grad():
        logits = model(ids).logits.float()
    rms = seen["x"].pow(2).mean(-1).sqrt()
    assert bool(torch.isfinite(seen["x"]).all())
    assert 0.1 < rms.min().item() <= rms.max().item() < 100
    assert 0.1 < logits.std().item() < 10
    assert len(set(logits.argmax(-1).flatten().tolist())) > 20


def test_the_first_layers_are_the_same_without_the_rest(tmp_path: Path) -> None:
    whole = models.resolve(small_shape(tmp_path))
    first = models.resolve(small_shape(tmp_path, layers=2))
    assert models.read_config(first)["num_hidden_layers"] == 2
    all_of_it = safe_bytes(whole / "model.safetensors")
    some = safe_bytes(first / "model.safetensors")
    assert some == {name: all_of_it[name] for name in some}
    assert len(all_of_it) - len(some) == 2 * 9


def safe_bytes(path: Path) -> dict[str, bytes]:
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__")
    return {
        name: raw[start + told["data_offsets"][0] : start + told["data_offsets"][1]]
        for name, told in header.items()
    }


def test_large_ones_are_cut_into_shards_with_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(weights, "SHARD_BYTES", 100_000)
    folder = models.resolve(small_shape(tmp_path))
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == 2 * read_shape(small_shape(tmp_path)).sizes.parameters
    told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)[1]
    assert not told["missing_keys"]


def test_tensors_begin_at_multiples_of_64_bytes(tmp_path: Path) -> None:
    folder = models.resolve(small_shape(tmp_path, head_dim=32))
    with (folder / "model.safetensors").open("rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(start - 8))
    places = [told["data_offsets"][0] for name, told in header.items() if name[0] != "_"]
    assert {(start + place) % 64 for place in places} == {0}


def test_digests_are_those_of_the_files(tmp_path: Path) -> None:
    shape = read_shape(small_shape(tmp_path))
    told: list[int] = []
    found = write_weights(tmp_path, tensors(shape.sizes, shape.depth), told.append)
    assert found == {"model.safetensors": weight_files.digest(tmp_path / "model.safetensors")}
    assert told[-1] == shape.weight_bytes
    assert told == sorted(told)


def test_writing_to_the_residual_stream_is_scaled_by_the_whole_depth() -> None:
    shape = read_shape(Model("0.1b", shape=True, layers=3))
    found = {tensor.name: tensor.deviation for tensor in tensors(shape.sizes, shape.depth)}
    assert found["model.layers.2.self_attn.q_proj.weight"] == pytest.approx(1 / math.sqrt(768))
    assert found["model.layers.2.mlp.down_proj.weight"] == pytest.approx(
        1 / math.sqrt(2048 * 2 * 12)
    )
    assert found["model.norm.weight"] is None


PINNED = [
    47724,
    48393,
    48185,
    15439,
    48320,
    48116,
    48402,
    15209,
    14534,
    48271,
    47918,
    48350,
    48349,
    48186,
    48008,
]
PINNED_DIGEST = "bd8c54f8a62c5bd0"
