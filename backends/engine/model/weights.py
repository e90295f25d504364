"""Weights of a checkpoint, read from safetensors and checked before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.checkpoint import READ, Checkpoint
from backends.engine.model.dimensions import tensor_shapes

COMPARED_ROWS = 1024
"""Rows of two matrices that are held against each other at a time."""
M = TypeVar("M")
MadeMatrix = TypeVar("MadeMatrix", covariant=True)


@dataclass(frozen=True)
class LayerParts(Generic[M]):
    """One transformer layer; matrices are (outputs, inputs) in the model's dtype, the gains of
    the norms float32."""

    input_norm: Tensor
    """(width,)"""
    qkv: M
    """((heads + 2 * kv_heads) * head_dim, width): query rows, then key rows, then value rows."""
    qkv_bias: Tensor | None
    """The rows' biases (Qwen2)."""
    q_norm: Tensor | None
    """(head_dim,): gain of the norm of each query head (Qwen3)."""
    k_norm: Tensor | None
    """(head_dim,)"""
    out: M
    """(width, heads * head_dim)"""
    post_norm: Tensor
    """(width,)"""
    gate_up: M
    """(2 * feed_forward, width): the gate's rows first; packed, 16 of each by turns."""
    down: M
    """(width, feed_forward)"""


@dataclass(frozen=True)
class ModelParts(Generic[M]):
    """A model's tensors, on one device."""

    embedding: M
    """(vocabulary, width)"""
    layers: tuple[LayerParts[M], ...]
    norm: Tensor
    """(width,) float32: gain of the norm in front of the head."""
    head: M
    """(vocabulary, width); the embedding itself when the two are tied."""
    epsilon: float
    """Of every norm."""


LayerWeights = LayerParts[Tensor]
"""A layer of contiguous tensors."""
Weights = ModelParts[Tensor]
"""A model of contiguous tensors."""


class Maker(Protocol[MadeMatrix]):
    """Makes matrices, in the form that some executor reads, of the tensors of a checkpoint."""

    def stacked(self, *names: str) -> MadeMatrix:
        """The named tensors, one below the other."""

    def paired(self, gate: str, up: str) -> MadeMatrix:
        """The two halves of a gated feed-forward block."""


def load_weights(
    directory: Path,
    architecture: Architecture,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    layers: range | None = None,
) -> Weights:
    """Read a checkpoint's weights, in one file or in shards, as tensors.

    Args:
        directory: holds the safetensors files, and their index where there are several.
        architecture: what `read_architecture` found in the same folder.
        dtype: float32, bfloat16 or float16; what the matrices are cast to.
        device: where they go; a few MiB at a time pass through the host's memory.
        layers: of which alone they are; None: all.

    Raises:
        EngineError: names the first tensor that is missing, unknown, quantised, of another shape
            than config.json asks for, or that holds NaN or infinite values (in `dtype`).
    """
    checkpoint = Checkpoint.open(directory)
    tensors = PlainTensors(checkpoint, dtype, device)
    return read_parts(checkpoint, architecture, tensors, tensors, layers)


def read_parts(
    checkpoint: Checkpoint,
    architecture: Architecture,
    made: Maker[M],
    vectors: PlainTensors,
    layers: range | None = None,
) -> ModelParts[M]:
    """A model whose matrices are `made`, with some of its layers or all. Raises what `load_weights`
    does."""
    also = {"lm_head.weight"} if architecture.tied else set()
    checkpoint.check(dict(tensor_shapes(architecture)), also)
    embedding = made.stacked("model.embed_tokens.weight")
    some = range(architecture.layers) if layers is None else layers
    parts = tuple(_layer(architecture, i, made, vectors) for i in some)
    norm = vectors.gain("model.norm")
    head = embedding
    if not architecture.tied:
        head = made.stacked("lm_head.weight")
    elif "lm_head.weight" in checkpoint.tensors:
        _refuse_an_untied_head(checkpoint, architecture, vectors.dtype)
    return ModelParts(embedding, parts, norm, head, architecture.epsilon)


def _layer(
    architecture: Architecture, index: int, made: Maker[M], vectors: PlainTensors
) -> LayerParts[M]:
    prefix = f"model.layers.{index}."
    attention = prefix + "self_attn."
    projections = [f"{attention}{name}_proj" for name in "qkv"]
    norms = [
        vectors.gain(f"{attention}{name}_norm") if architecture.qk_norm else None for name in "qk"
    ]
    biases = [f"{name}.bias" for name in projections]
    return LayerParts(
        input_norm=vectors.gain(prefix + "input_layernorm"),
        qkv=made.stacked(*(f"{name}.weight" for name in projections)),
        qkv_bias=vectors.stacked(*biases) if architecture.qkv_bias else None,
        q_norm=norms[0],
        k_norm=norms[1],
        out=made.stacked(attention + "o_proj.weight"),
        post_norm=vectors.gain(prefix + "post_attention_layernorm"),
        gate_up=made.paired(prefix + "mlp.gate_proj.weight", prefix + "mlp.up_proj.weight"),
        down=made.stacked(prefix + "mlp.down_proj.weight"),
    )


def _refuse_an_untied_head(
    checkpoint: Checkpoint, architecture: Architecture, dtype: torch.dtype
) -> None:
    """Checkpoints may store a tied head a second time; one of its own would be ignored."""
    stored = checkpoint.tensors["lm_head.weight"]
    same = stored.dtype in READ and stored.shape == (architecture.vocabulary, architecture.width)
    names = ("lm_head.weight", "model.embed_tokens.weight")
    pairs = zip(*(checkpoint.pieces(name, dtype, COMPARED_ROWS) for name in names), strict=True)
    same = same and all(torch.equal(one, other) for (_, one), (_, other) in pairs)
    if not same:
        raise EngineError(
            f"{checkpoint.directory}: lm_head.weight differs from model.embed_tokens.weight, "
            "though config.json says tie_word_embeddings"
        )


@dataclass(frozen=True, slots=True)
class PlainTensors:
    """A `Maker` of contiguous tensors."""

    checkpoint: Checkpoint
    dtype: torch.dtype
    device: torch.device | str = "cpu"

    def stacked(self, *names: str) -> Tensor:
        """In the model's dtype."""
        return self._joined(names, self.dtype)

    def paired(self, gate: str, up: str) -> Tensor:
        """The gate's rows first."""
        return self._joined((gate, up), self.dtype)

    def gain(self, name: str) -> Tensor:
        """A norm's gain, float32."""
        return self._joined((f"{name}.weight",), torch.float32)

    def _joined(self, names: tuple[str, ...], dtype: torch.dtype) -> Tensor:
        shapes = [self.checkpoint.tensors[name].shape for name in names]
        rows = [shape[0] for shape in shapes]
        joined = torch.empty(sum(rows), *shapes[0][1:], dtype=dtype, device=self.device)
        for name, part in zip(names, torch.split(joined, rows), strict=True):
            for start, piece in self.checkpoint.pieces(name, dtype):
                part[start : start + len(piece)] = piece
        return joined
