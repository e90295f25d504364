"""Exit heads: what predicts the next token from a hidden state in the middle of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.packed import PackedMatrix

Matrix = TypeVar("Matrix", Tensor, PackedMatrix)
EIGHT_BITS = torch.float8_e4m3fn
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
    scales: Tensor | None = None
    """(V',) float32: what the rows of a matrix in 8 bits are multiplied with."""

    def plain(self) -> Tensor:
        """The matrix as a tensor, in float32 where it has scales."""
        if self.scales is not None:
            return self.matrix[:].float() * self.scales[:, None]
        return self.matrix if isinstance(self.matrix, Tensor) else self.matrix[:]

    def tokens(self) -> list[int] | None:
        """Of a shortlist, by place, with -1, for logits that are NaN, behind the last."""
        return None if self.token_ids is None else [*self.token_ids.tolist(), -1]


def in_8_bits(head: ExitHead) -> ExitHead:
    """The same with a matrix of float8_e4m3fn, each row scaled so that its largest number is the
    largest of these 8 bits. It only predicts: what verifies has all its bits."""
    wide = head.plain().float()
    most = torch.finfo(EIGHT_BITS).max
    scales = (wide.abs().amax(1) / most).clamp_(min=torch.finfo(torch.float32).tiny)
    return replace(head, matrix=(wide / scales[:, None]).to(EIGHT_BITS), scales=scales)


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
