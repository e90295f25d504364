"""Exit heads: what predicts the next token from a hidden state in the middle of the model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ExitHead:
    """One exit. Its logits are ``matrix @ (rms_norm(h) * gain)`` with the model's final norm."""

    layer: int
    """Behind this many layers."""
    matrix: Tensor
    """(V', width): the final head times the trained transform, or a head of its own."""
    token_ids: Tensor | None = None
    """(V',) int64: the tokens of a shortlist; None: all of the vocabulary."""
