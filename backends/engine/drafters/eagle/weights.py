"""The weights of an EAGLE-3 head, as vLLM names them and `decodebench train eagle` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from backends.engine.model.architecture import Architecture
from backends.engine.model.checkpoint import Checkpoint
from backends.engine.model.weights import LayerWeights, PlainTensors

LAYER = "midlayer."
ATTENTION, FEED_FORWARD = LAYER + "self_attn.", LAYER + "mlp."


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


def eagle_shapes(architecture: Architecture, taps: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of a head whose layer has the target's sizes.

    Args:
        architecture: the target's.
        taps: after how many of its layers states are read.
    """
    d, inner = architecture.width, architecture.feed_forward
    return {
        "fc.weight": (d, taps * d),
        LAYER + "hidden_norm.weight": (d,),
        LAYER + "input_layernorm.weight": (d,),
        ATTENTION + "q_proj.weight": (architecture.query_size, 2 * d),
        ATTENTION + "k_proj.weight": (architecture.kv_size, 2 * d),
        ATTENTION + "v_proj.weight": (architecture.kv_size, 2 * d),
        ATTENTION + "o_proj.weight": (d, architecture.query_size),
        LAYER + "post_attention_layernorm.weight": (d,),
        FEED_FORWARD + "gate_proj.weight": (inner, d),
        FEED_FORWARD + "up_proj.weight": (inner, d),
        FEED_FORWARD + "down_proj.weight": (d, inner),
        "norm.weight": (d,),
    }


def eagle_architecture(target: Architecture) -> Architecture:
    """The shape of the head's layer, by itself."""
    return replace(target, layers=1, family="llama", qkv_bias=False, qk_norm=False)


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


def drawn_eagle(
    target: Architecture, taps: int, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> EagleWeights:
    """A head with random weights, the same ones each time: its cost is a trained one's, and its
    states stay in the range of the target's. Arguments as for `load_eagle`."""
    return _head(_DrawnTensors(eagle_shapes(target, taps), dtype, device))


class _DrawnTensors:
    """A `Maker` of random tensors that keep the variance of what they multiply."""

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self._shapes, self._dtype, self._device = shapes, dtype, device
        self._random = torch.Generator().manual_seed(0)

    def stacked(self, *names: str) -> Tensor:
        """The tensors' rows, one after the other."""
        shapes = [self._shapes[name] for name in names]
        (inputs,) = {shape[1] for shape in shapes}
        drawn = torch.randn(sum(shape[0] for shape in shapes), inputs, generator=self._random)
        drawn *= inputs**-0.5
        return drawn.to(self._device, self._dtype)

    def paired(self, gate: str, up: str) -> Tensor:
        """The gate's rows first."""
        return self.stacked(gate, up)

    def gain(self, name: str) -> Tensor:
        """A norm that changes no scale."""
        return torch.ones(self._shapes[f"{name}.weight"], device=self._device)


def _head(made: PlainTensors | _DrawnTensors) -> EagleWeights:
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
