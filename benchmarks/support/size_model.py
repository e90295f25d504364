"""Models of random weights at the sizes that users run, for what decoding costs."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.engine.model.architecture import Architecture
from backends.engine.model.weights import LayerWeights, Weights

SCALE = 0.02
POOL = 1 << 24
"""Numbers that are drawn; larger tensors repeat them."""


def _shape(
    layers: int, width: int, heads: int, kv_heads: int, feed_forward: int, vocabulary: int
) -> Architecture:
    frequencies = 10000.0 ** -(torch.arange(0, 64, 2) / 64)
    return Architecture(
        family="llama", layers=layers, width=width, feed_forward=feed_forward, heads=heads,
        kv_heads=kv_heads, head_dim=64, vocabulary=vocabulary, epsilon=1e-5, positions=8192,
        tied=True, qkv_bias=False, qk_norm=False, inverse_frequencies=tuple(frequencies.tolist()),
    )  # fmt: skip


SIZES = {
    "0.1b": _shape(12, 768, 12, 4, 2048, 32000),
    "0.5b": _shape(24, 1024, 16, 8, 3584, 64000),
    "1b": _shape(16, 2048, 32, 8, 8192, 128256),
}
"""The last is Llama-3.2-1B's."""


def random_weights(shape: Architecture, dtype: torch.dtype = torch.bfloat16) -> Weights:
    """Seeded; hidden states stay finite."""
    pool = torch.randn(POOL, generator=torch.Generator().manual_seed(1)).mul(SCALE).to(dtype)

    def matrix(outputs: int, inputs: int) -> Tensor:
        flat = torch.empty(outputs * inputs, dtype=dtype)
        for part in torch.split(flat, POOL):
            part.copy_(pool[: len(part)])
        return flat.view(outputs, inputs)

    def layer() -> LayerWeights:
        return LayerWeights(
            input_norm=torch.ones(shape.width),
            qkv=matrix(shape.query_size + 2 * shape.kv_size, shape.width),
            qkv_bias=None,
            q_norm=None,
            k_norm=None,
            out=matrix(shape.width, shape.query_size),
            post_norm=torch.ones(shape.width),
            gate_up=matrix(2 * shape.feed_forward, shape.width),
            down=matrix(shape.width, shape.feed_forward),
        )

    embedding = matrix(shape.vocabulary, shape.width)
    layers = tuple(layer() for _ in range(shape.layers))
    return Weights(embedding, layers, torch.ones(shape.width), embedding, shape.epsilon)


def products(weights: Weights) -> list[Tensor]:
    """The matrices that every token of a prompt is multiplied with."""
    return [m for at in weights.layers for m in (at.qkv, at.out, at.gate_up, at.down)]


def token_bytes(weights: Weights) -> int:
    """Bytes of weights that a decoded token reads."""
    return sum(matrix.nbytes for matrix in [*products(weights), weights.head])
