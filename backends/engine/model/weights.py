"""Weights of a checkpoint, read from safetensors and checked before anything is computed."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends.engine.model.architecture import Architecture, EngineError

READ = {"F64", "F32", "F16", "BF16"}
"""The dtypes of safetensors that hold plain weights; integers and eight-bit floats are codes."""
IGNORED = ".rotary_emb.inv_freq"
"""Old checkpoints store the rotary frequencies, which config.json decides."""
CHECKED_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer layer; matrices are (outputs, inputs) in the model's dtype, the gains of
    the norms float32."""

    input_norm: Tensor
    """(width,)"""
    qkv: Tensor
    """((heads + 2 * kv_heads) * head_dim, width): query rows, then key rows, then value rows."""
    qkv_bias: Tensor | None
    """The rows' biases (Qwen2)."""
    q_norm: Tensor | None
    """(head_dim,): gain of the norm of each query head (Qwen3)."""
    k_norm: Tensor | None
    """(head_dim,)"""
    out: Tensor
    """(width, heads * head_dim)"""
    post_norm: Tensor
    """(width,)"""
    gate_up: Tensor
    """(2 * feed_forward, width): the gate's rows first."""
    down: Tensor
    """(width, feed_forward)"""


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's tensors, contiguous, on one device."""

    embedding: Tensor
    """(vocabulary, width)"""
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    """(width,) float32: gain of the norm in front of the head."""
    head: Tensor
    """(vocabulary, width); the embedding itself when the two are tied."""
    epsilon: float
    """Of every norm."""


def load_weights(
    directory: Path,
    architecture: Architecture,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> Weights:
    """Read a checkpoint's weights, in one file or in shards.

    Args:
        directory: holds the safetensors files, and their index where there are several.
        architecture: what `read_architecture` found in the same folder.
        dtype: float32, bfloat16 or float16; what the matrices are cast to.
        device: where they go; one tensor at a time passes through the host's memory.

    Raises:
        EngineError: names the first tensor that is missing, unknown, quantised, of another shape
            than config.json asks for, or that holds NaN or infinite values (in `dtype`).
    """
    with ExitStack() as opened:
        source = _Source(_open(directory, opened), dtype, device, directory)
        source.check(_shapes(architecture), architecture.tied)
        embedding = source.matrix("model.embed_tokens")
        layers = tuple(_layer(source, architecture, i) for i in range(architecture.layers))
        norm = source.gain("model.norm")
        head = embedding
        if not architecture.tied:
            head = source.matrix("lm_head")
        elif "lm_head.weight" in source.tensors:
            _refuse_an_untied_head(source, embedding)
        return Weights(embedding, layers, norm, head, architecture.epsilon)


def _layer(source: _Source, architecture: Architecture, index: int) -> LayerWeights:
    prefix = f"model.layers.{index}."
    attention = prefix + "self_attn."
    projections = [f"{attention}{name}_proj" for name in "qkv"]
    norms = [
        source.gain(f"{attention}{name}_norm") if architecture.qk_norm else None for name in "qk"
    ]
    return LayerWeights(
        input_norm=source.gain(prefix + "input_layernorm"),
        qkv=source.matrix(*projections),
        qkv_bias=source.matrix(*projections, kind="bias") if architecture.qkv_bias else None,
        q_norm=norms[0],
        k_norm=norms[1],
        out=source.matrix(attention + "o_proj"),
        post_norm=source.gain(prefix + "post_attention_layernorm"),
        gate_up=source.matrix(prefix + "mlp.gate_proj", prefix + "mlp.up_proj"),
        down=source.matrix(prefix + "mlp.down_proj"),
    )


def _shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Every tensor that the checkpoint must hold, under Hugging Face's name."""
    width, inner = architecture.width, architecture.feed_forward
    queries, keys = architecture.query_size, architecture.kv_size
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (architecture.vocabulary, width),
        "model.norm.weight": (width,),
    }
    if not architecture.tied:
        shapes["lm_head.weight"] = (architecture.vocabulary, width)
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "self_attn.o_proj.weight": (width, queries),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
    }
    for name, rows in (("q", queries), ("k", keys), ("v", keys)):
        layer[f"self_attn.{name}_proj.weight"] = (rows, width)
        if architecture.qkv_bias:
            layer[f"self_attn.{name}_proj.bias"] = (rows,)
        if architecture.qk_norm and name != "v":
            layer[f"self_attn.{name}_norm.weight"] = (architecture.head_dim,)
    for index in range(architecture.layers):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


def _open(directory: Path, opened: ExitStack) -> dict[str, Any]:
    """Open the checkpoint's files: tensor name -> the file that holds it."""
    from safetensors import SafetensorError, safe_open

    tensors: dict[str, Any] = {}
    for path in _files(directory):
        try:
            file = opened.enter_context(safe_open(path, framework="pt", device="cpu"))
        except FileNotFoundError:
            raise EngineError(f"{path}: missing") from None
        except (SafetensorError, OSError) as error:
            raise EngineError(f"{path}: not a safetensors file: {error}".splitlines()[0]) from None
        for name in file.keys():  # noqa: SIM118 (no mapping)
            if name in tensors:
                raise EngineError(f"{path}: tensor {name} is in another file too")
            tensors[name] = file
    return tensors


def _files(directory: Path) -> list[Path]:
    """What the index names; else model.safetensors; else every safetensors file."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            return [directory / name for name in _in_index(index)]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise EngineError(f"{index}: expected a weight_map of tensors to files") from None
    if (single := directory / "model.safetensors").is_file():
        return [single]
    if found := sorted(directory.glob("*.safetensors")):
        return found
    raise EngineError(f"{directory}: no *.safetensors")


def _in_index(index: Path) -> list[str]:
    return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))


def _refuse_an_untied_head(source: _Source, embedding: Tensor) -> None:
    """Checkpoints may store a tied head a second time; one of its own would be ignored."""
    head = source.read("lm_head.weight")
    if head.shape != embedding.shape or not torch.equal(head.to(embedding), embedding):
        raise EngineError(
            f"{source.directory}: lm_head.weight differs from model.embed_tokens.weight, though "
            "config.json says tie_word_embeddings"
        )


@dataclass(frozen=True, slots=True)
class _Source:
    """Reads tensors by name; what it gives out is contiguous, cast and finite."""

    tensors: dict[str, Any]
    dtype: torch.dtype
    device: torch.device | str
    directory: Path

    def check(self, shapes: dict[str, tuple[int, ...]], tied: bool) -> None:
        """Compare names, dtypes and shapes with what is expected; reads no weights."""
        for name, expected in shapes.items():
            if name not in self.tensors:
                raise EngineError(
                    f"{self.directory}: tensor {name} is missing; expected shape {list(expected)}"
                )
            stored = self.tensors[name].get_slice(name)
            if stored.get_dtype() not in READ:
                raise EngineError(
                    f"{self.directory}: tensor {name} is {stored.get_dtype()}: quantised weights "
                    f"are not read; expected one of {', '.join(sorted(READ))}"
                )
            if (shape := stored.get_shape()) != list(expected):
                raise EngineError(
                    f"{self.directory}: tensor {name} has shape {shape}, expected {list(expected)}"
                )
        known = shapes.keys() | ({"lm_head.weight"} if tied else set())
        for name in sorted(self.tensors.keys() - known):
            if not name.endswith(IGNORED):
                raise EngineError(
                    f"{self.directory}: tensor {name} is unknown to the architecture of config.json"
                )

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self.tensors[name].get_tensor(name)
        return tensor

    def matrix(self, *names: str, kind: str = "weight") -> Tensor:
        """The named tensors, one below the other, in the model's dtype."""
        return self._joined([f"{name}.{kind}" for name in names], self.dtype)

    def gain(self, name: str) -> Tensor:
        """A norm's gain, float32."""
        return self._joined([f"{name}.weight"], torch.float32)

    def _joined(self, names: list[str], dtype: torch.dtype) -> Tensor:
        shapes = [self.tensors[name].get_slice(name).get_shape() for name in names]
        rows = [shape[0] for shape in shapes]
        joined = torch.empty(sum(rows), *shapes[0][1:], dtype=dtype, device=self.device)
        for name, part in zip(names, torch.split(joined, rows), strict=True):
            tensor = self.read(name)
            part.copy_(tensor)
            if not _finite(part):
                held = "NaN or infinite values"
                if _finite(tensor):
                    held = f"values too large for {str(dtype).removeprefix('torch.')}"
                raise EngineError(f"{self.directory}: tensor {name} holds {held}")
        return joined


def _finite(tensor: Tensor) -> bool:
    """Part by part, so that the check needs little memory of its own."""
    parts = torch.split(tensor.reshape(-1), CHECKED_AT_ONCE)
    return all(bool(torch.isfinite(part).all()) for part in parts)
