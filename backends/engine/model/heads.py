"""Exit heads: what predicts the next token from a hidden state in the middle of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.packed import PackedMatrix

Matrix = TypeVar("Matrix", Tensor, PackedMatrix)
CHUNK = 16384
"""Rows of the final head that are folded at once."""


@dataclass(frozen=True, slots=True)
class ExitHead:
    """One exit. Its logits are ``matrix @ (rms_norm(h) * gain)`` with the model's final norm."""

    layer: int
    """After this many layers."""
    matrix: Tensor | PackedMatrix
    """(V', width): the final head times the trained transform, or a head of its own."""
    token_ids: Tensor | None = None
    """(V',) int64: the tokens of a shortlist; None: all of the vocabulary."""
    margin: bool = False
    """What it calls confidence: the best token's probability less the second's, instead of its
    probability."""

    def plain(self) -> Tensor:
        """The matrix as a tensor."""
        return self.matrix if isinstance(self.matrix, Tensor) else self.matrix[:]


def folded(head: Matrix, parameter: Tensor) -> Matrix:
    """The matrix [V, d] that gives an exit's logits, in the form and dtype and on the device of the
    final `head`: head times the [d, d] transform, rounded once, or a [V, d] head of its own."""
    own = parameter.to(head.device, head.dtype)
    is_whole = own.shape == head.shape
    if isinstance(head, Tensor):
        return own if is_whole else torch.cat([part for _, part in _folded(head, own)])
    packed = PackedMatrix.allocate(*head.shape, head.dtype)
    for start, part in [(0, own)] if is_whole else _folded(head, own):
        packed.write(start, part)
    return packed


def _folded(head: Tensor | PackedMatrix, transform: Tensor) -> Iterator[tuple[int, Tensor]]:
    wide = transform.float()
    for start in range(0, len(head), CHUNK):
        yield start, (head[start : start + CHUNK].float() @ wide).to(head.dtype)


def check_exits(architecture: Architecture, heads: Sequence[ExitHead]) -> None:
    """Raise `EngineError` for heads whose layers or sizes do not fit the model."""
    bounds = [0, *(head.layer for head in heads), architecture.layers]
    if any(first >= second for first, second in pairwise(bounds)):
        raise EngineError(
            f"exit layers {bounds[1:-1]}: expected ascending numbers from 1 to "
            f"{architecture.layers - 1}"
        )
    for head in heads:
        named = architecture.vocabulary if head.token_ids is None else len(head.token_ids)
        if head.matrix.shape != (named, architecture.width):
            raise EngineError(
                f"exit head of layer {head.layer}: shape {list(head.matrix.shape)}, expected "
                f"{[named, architecture.width]}"
            )
