"""Sizes of the networks, without torch."""

from __future__ import annotations

from dataclasses import dataclass

GREYS = 256
"""Values of a pixel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderShape:
    """Sizes of an encoder, under transformers' meanings."""

    layers: int
    width: int
    heads: int
    feed_forward: int
    vocabulary: int
    positions: int
    types: int
    classes: int
    epsilon: float = 1e-12
    activation: str = "gelu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualShape:
    """Sizes of a network: a block for each width, which halves the image where the width grows."""

    widths: tuple[int, ...]
    side: int
    classes: int
    branch_width: int = 16
