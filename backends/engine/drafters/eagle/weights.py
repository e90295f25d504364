"""The weights of an EAGLE-3 head, as vLLM names them and `decodebench train eagle` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from backends.engine.drafters.eagle.sizes import ATTENTION, FEED_FORWARD, LAYER, eagle_shapes
from backends.engine.model.architecture import Architecture
from backends.engine.model.checkpoint import Checkpoint
from backends.engine.model.weights import LayerWeights, PlainTensors


@dataclass(frozen=True, slots=True)
class EagleWeights:
    """What the head has of its own; embedding and final head are the target's."""

    fusion: Tensor
    """(width, taps * width): makes one state of those after several layers."""
    token_norm: Tensor
    """(width,) float32: gain of the norm of the token's embedding."""
    layer: LayerWeights
    """Its `qkv` has 2 * width inputs, the normed embedding first; `input_norm` is the state's."""
    norm: Tensor
    """(width,) float32: gain of the norm in front of the final head."""


def open_eagle(directory: Path, target: Architecture, taps: int) -> Checkpoint:
    """The head's tensors, their names and shapes checked; no weights are read.

    Raises:
        EngineError: for the first tensor that is missing, unknown, quantised or of another shape.
    """
    checkpoint = Checkpoint.open(directory)
    checkpoint.check(eagle_shapes(target, taps), set())
    return checkpoint


def load_eagle(
    directory: Path,
    target: Architecture,
    taps: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
) -> EagleWeights:
    """Read a head.

    Args:
        directory: holds its ``model.safetensors``.
        target: the shape of the model that it drafts for.
        taps: after how many layers it reads states.
        dtype: of the matrices.
        device: where they go.

    Raises:
        EngineError: what `open_eagle` raises, and for NaN and infinite values.
    """
    return _head(PlainTensors(open_eagle(directory, target, taps), dtype, device))


def _head(made: PlainTensors) -> EagleWeights:
    layer = LayerWeights(
        input_norm=made.gain(LAYER + "hidden_norm"),
        qkv=made.stacked(*(f"{ATTENTION}{part}_proj.weight" for part in "qkv")),
        qkv_bias=None,
        q_norm=None,
        k_norm=None,
        out=made.stacked(ATTENTION + "o_proj.weight"),
        post_norm=made.gain(LAYER + "post_attention_layernorm"),
        gate_up=made.paired(FEED_FORWARD + "gate_proj.weight", FEED_FORWARD + "up_proj.weight"),
        down=made.stacked(FEED_FORWARD + "down_proj.weight"),
    )
    token_norm = made.gain(LAYER + "input_layernorm")
    return EagleWeights(made.stacked("fc.weight"), token_norm, layer, made.gain("norm"))
