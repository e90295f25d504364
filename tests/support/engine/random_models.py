"""Models of random weights, made in memory, and executors that run them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from backends.engine.executors.base import Executor
from backends.engine.executors.native import NativeExecutor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import Architecture
from backends.engine.model.heads import ExitHead
from backends.engine.model.weights import LayerWeights, Weights
from backends.kernels.cpu import native

BASE = Architecture(
    family="llama",
    layers=6,
    width=64,
    feed_forward=96,
    heads=4,
    kv_heads=2,
    head_dim=32,
    vocabulary=97,
    epsilon=1e-5,
    positions=512,
    tied=False,
    qkv_bias=False,
    qk_norm=False,
    inverse_frequencies=(),
)
SHAPES = {
    "llama": BASE,
    "tied": replace(BASE, tied=True, vocabulary=256),
    "one-key-head": replace(BASE, heads=6, kv_heads=1, head_dim=16, layers=4),
    "every-head-its-keys": replace(BASE, kv_heads=4, width=48, feed_forward=160),
    "qwen2": replace(BASE, family="qwen2", qkv_bias=True, heads=3, kv_heads=3, head_dim=48),
    "qwen3": replace(BASE, family="qwen3", qk_norm=True, head_dim=64, layers=3),
    "odd-vocabulary-wide": replace(BASE, width=208, feed_forward=16, vocabulary=1003, layers=5),
}

MORE_SHAPES = {"deep": replace(BASE, layers=11, width=32, heads=2, kv_heads=1, feed_forward=208)}
"""For tests of whole texts, which the kernels' own have not to repeat."""


@dataclass(frozen=True)
class RandomModel:
    """A model whose deeper layers change little, so that middle layers often predict right."""

    architecture: Architecture
    weights: Weights

    def heads(self, layers: tuple[int, ...]) -> list[ExitHead]:
        return [ExitHead(layer, self.weights.head) for layer in layers]


def random_model(
    name: str,
    dtype: torch.dtype = torch.float32,
    *,
    seed: int = 0,
    agreement: float = 0.25,
    vocabulary: int | None = None,
) -> RandomModel:
    """One of `SHAPES` or `MORE_SHAPES`, or with another vocabulary.

    `agreement` scales what later layers add: near 0 all layers agree.
    """
    shape = (SHAPES | MORE_SHAPES)[name]
    shape = replace(shape, vocabulary=vocabulary or shape.vocabulary)
    frequencies = 10000.0 ** -(torch.arange(0, shape.head_dim, 2) / shape.head_dim)
    shape = replace(shape, inverse_frequencies=tuple(frequencies.tolist()))
    draw = torch.Generator().manual_seed(seed)

    def normal(*size: int, scale: float) -> Tensor:
        return (torch.randn(*size, generator=draw) * scale).to(dtype)

    def gain(size: int) -> Tensor:
        return 1 + 0.2 * torch.randn(size, generator=draw)

    layers = []
    for index in range(shape.layers):
        adds = 0.5 if index == 0 else 0.5 * agreement
        total = shape.query_size + 2 * shape.kv_size
        layers.append(
            LayerWeights(
                input_norm=gain(shape.width),
                qkv=normal(total, shape.width, scale=0.2),
                qkv_bias=normal(total, scale=0.2) if shape.qkv_bias else None,
                q_norm=gain(shape.head_dim) if shape.qk_norm else None,
                k_norm=gain(shape.head_dim) if shape.qk_norm else None,
                out=normal(shape.width, shape.query_size, scale=adds * shape.query_size**-0.5),
                post_norm=gain(shape.width),
                gate_up=normal(2 * shape.feed_forward, shape.width, scale=0.2),
                down=normal(shape.width, shape.feed_forward, scale=adds),
            )
        )
    embedding = normal(shape.vocabulary, shape.width, scale=0.5)
    head = embedding if shape.tied else normal(shape.vocabulary, shape.width, scale=0.5)
    weights = Weights(embedding, tuple(layers), gain(shape.width), head, shape.epsilon)
    return RandomModel(shape, weights)


def open_executor(
    model: RandomModel, exits: tuple[int, ...], slots: int = 4, kernels: str = "auto"
) -> Executor:
    """The C++ kernels where a compiler is found and torch is not asked for, else torch; the model's
    own head at the exits."""
    room = {"slots": slots, "max_len": 128}
    try:
        if kernels == "torch":
            raise native.NativeUnavailableError("not asked for")
        native.library()
    except native.NativeUnavailableError:
        return TorchExecutor(model.weights, model.architecture, model.heads(exits), **room)
    heads = model.heads(exits)
    return NativeExecutor(model.weights, model.architecture, heads, threads=1, **room)
