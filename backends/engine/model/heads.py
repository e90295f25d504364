"""Exit heads: what predicts the next token from a hidden state in the middle of the model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 16384
"""Rows of the final head that are folded at once."""


@dataclass(frozen=True, slots=True)
class ExitHead:
    """One exit. Its logits are ``matrix @ (rms_norm(h) * gain)`` with the model's final norm."""

    layer: int
    """After this many layers."""
    matrix: Tensor
    """(V', width): the final head times the trained transform, or a head of its own."""
    token_ids: Tensor | None = None
    """(V',) int64: the tokens of a shortlist; None: all of the vocabulary."""


def folded(head: Tensor, parameter: Tensor) -> Tensor:
    """The matrix [V, d] that gives an exit's logits, in the dtype and on the device of the final
    `head`: head times the [d, d] transform, rounded once, or a [V, d] head of its own."""
    own = parameter.to(head.device, head.dtype)
    if own.shape == head.shape:
        return own
    transform = own.float()
    parts = torch.split(head, CHUNK)
    return torch.cat([(part.float() @ transform).to(head.dtype) for part in parts])
