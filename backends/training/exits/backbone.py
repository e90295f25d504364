"""The frozen model as training sees it: hidden states at layer boundaries, and its head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends.checkpoints import models
from backends.engine.model.architecture import Architecture, EngineError, read_architecture
from backends.engine.model.forward import hidden_states, rms_norm
from backends.engine.model.weights import Weights, load_weights
from harness.core.errors import UserError

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class Backbone:
    """A frozen model; everything lies on one device, matrices in the model's dtype."""

    architecture: Architecture
    weights: Weights
    normed: bool = True
    """Whether `states` goes through the final RMSNorm, as an exit head reads it, or is the residual
    stream itself, as a classifier reads it."""

    @property
    def head(self) -> Tensor:
        """E* [V, d]."""
        return self.weights.head

    def states(self, ids: Tensor, layers: Sequence[int]) -> dict[int, Tensor]:
        """The states [B, T, d] after each layer, in the model's dtype; see `normed`.

        The norm is the model's own, so that T = I is the model's head on a middle layer.

        Args:
            ids: int64 [B, T], shorter texts padded after their end.
            layers: 1 to the number of layers.
        """
        found = hidden_states(self.weights, self.architecture, ids.to(self.head.device), layers)
        if not self.normed:
            return found
        gain, epsilon = self.weights.norm, self.weights.epsilon
        return {
            layer: rms_norm(hidden.float(), gain, epsilon).to(self.head.dtype)
            for layer, hidden in found.items()
        }


def architecture_of(directory: Path) -> Architecture:
    """The checkpoint's shape. Raises `UserError` for one that the engine cannot compute."""
    try:
        return read_architecture(directory)
    except EngineError as error:
        raise UserError(str(error)) from None


def dtype_of(directory: Path) -> torch.dtype:
    """What the checkpoint's config names; float32 where it names none."""
    config: dict[str, Any] = models.read_config(directory)
    return DTYPES.get(str(config.get("dtype") or config.get("torch_dtype")), torch.float32)


def read_backbone(
    directory: Path, architecture: Architecture, device: str, *, normed: bool = True
) -> Backbone:
    """Load a checkpoint for reading hidden states, in the dtype that its config names.

    Raises:
        UserError: for weights that are missing, ill-shaped, NaN or infinite.
    """
    try:
        weights = load_weights(directory, architecture, dtype_of(directory), device)
    except EngineError as error:
        raise UserError(str(error)) from None
    return Backbone(architecture, weights, normed)
