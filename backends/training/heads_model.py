"""The frozen model as head training sees it: hidden states at layer boundaries, and its head."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from backends.training.checkpoint import load
from harness.core import UserError

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True)
class Backbone:
    """A frozen model. `head` is E* [V, d] in the model's dtype, `gain` float32 [d]."""

    layers: int
    positions: int
    head: Tensor
    gain: Tensor
    epsilon: float
    hidden: Callable[[Tensor, Sequence[int]], dict[int, Tensor]]
    """ids int64 [B, T] and layers -> the states [B, T, d] after each of these layers."""

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the matrix products."""
        return self.head.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.head.device

    def normed(self, hidden: Tensor) -> Tensor:
        """The final RMSNorm of states [..., d], in float32, cast to the model's dtype.

        Every exit head reads this, so that T = I is the model's own head on a middle layer.
        """
        states = hidden.float()
        scale = torch.rsqrt(states.square().mean(dim=-1, keepdim=True) + self.epsilon)
        return (states * scale * self.gain).to(self.dtype)


def read_backbone(directory: Path, device: str) -> Backbone:
    """Load a checkpoint folder for reading hidden states, in the dtype that its config names.

    Raises:
        UserError: for weights that hold NaN or infinity.
    """
    model = load(directory).to(device)
    config = json.loads((directory / "config.json").read_text())
    dtype = DTYPES[config.get("dtype") or config["torch_dtype"]]
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise UserError(f"{directory}: tensor {name} holds NaN or infinity")

    def hidden(ids: Tensor, layers: Sequence[int]) -> dict[int, Tensor]:
        states = model.hidden_states(ids, dtype)
        return {layer: states[layer - 1] for layer in layers}

    return Backbone(
        layers=model.shape.layers,
        positions=config["max_position_embeddings"],
        head=model.model.embed_tokens.weight.detach().to(dtype),
        gain=model.model.norm.weight.detach().float(),
        epsilon=model.shape.epsilon,
        hidden=hidden,
    )
