"""Models of random weights at the sizes that users run, for what decoding costs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from backends.checkpoints.shapes.ladder import LADDER
from backends.engine.model.architecture import Architecture, read_architecture
from backends.engine.model.weights import LayerWeights, Weights

SCALE = 0.02
SIZES = ("0.1b", "0.5b", "1b", "llama-3.2-1b")
POOL = 1 << 24
"""Numbers that are drawn; larger tensors repeat them."""


def architecture(name: str) -> Architecture:
    """One of the shapes that have a name, as the engine reads its configuration."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(LADDER[name]))
        return read_architecture(Path(folder))


def random_weights(shape: Architecture, device: str = "cpu") -> Weights:
    """Seeded, in bfloat16; hidden states stay finite."""
    pool = torch.randn(POOL, generator=torch.Generator().manual_seed(1)).mul(SCALE)
    pool = pool.to(device, torch.bfloat16)

    def matrix(outputs: int, inputs: int) -> Tensor:
        flat = torch.empty(outputs * inputs, dtype=pool.dtype, device=device)
        for part in torch.split(flat, POOL):
            part.copy_(pool[: len(part)])
        return flat.view(outputs, inputs)

    def layer() -> LayerWeights:
        return LayerWeights(
            input_norm=torch.ones(shape.width, device=device),
            qkv=matrix(shape.query_size + 2 * shape.kv_size, shape.width),
            qkv_bias=None,
            q_norm=None,
            k_norm=None,
            out=matrix(shape.width, shape.query_size),
            post_norm=torch.ones(shape.width, device=device),
            gate_up=matrix(2 * shape.feed_forward, shape.width),
            down=matrix(shape.width, shape.feed_forward),
        )

    embedding = matrix(shape.vocabulary, shape.width)
    layers = tuple(layer() for _ in range(shape.layers))
    gain = torch.ones(shape.width, device=device)
    return Weights(embedding, layers, gain, embedding, shape.epsilon)


def products(weights: Weights) -> list[Tensor]:
    """The matrices that every token of a prompt is multiplied with."""
    return [m for at in weights.layers for m in (at.qkv, at.out, at.gate_up, at.down)]


def token_bytes(weights: Weights) -> int:
    """Bytes of weights that a decoded token reads."""
    return sum(matrix.nbytes for matrix in [*products(weights), weights.head])
