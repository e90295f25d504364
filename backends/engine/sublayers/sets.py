"""Sets of sublayers: what a pass leaves out of a model's layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.engine.model.architecture import EngineError

ATTENTION, MLP = 1, 2
"""Bits of a mask, as the C++ kernels read them."""


@dataclass(frozen=True, slots=True)
class Sublayers:
    """Some attention and some MLP sublayers, by the numbers of their layers, counted from 0."""

    attention: frozenset[int] = frozenset()
    mlp: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.attention) + len(self.mlp)

    def __str__(self) -> str:
        return f"attention {sorted(self.attention)}, mlp {sorted(self.mlp)}"

    def mask(self, layers: int) -> NDArray[np.uint8]:
        """(layers,): the bits `ATTENTION` and `MLP` of each layer."""
        found = np.zeros(layers, np.uint8)
        found[sorted(self.attention)] |= ATTENTION
        found[sorted(self.mlp)] |= MLP
        return found

    @classmethod
    def of(cls, chosen: Sequence[bool]) -> Sublayers:
        """From a flag for each sublayer: the attention and the MLP of layer 0, of layer 1, ..."""
        numbers = [number for number, flag in enumerate(chosen) if flag]
        return cls(
            frozenset(number // 2 for number in numbers if number % 2 == 0),
            frozenset(number // 2 for number in numbers if number % 2),
        )

    def flags(self, layers: int) -> tuple[bool, ...]:
        """The inverse of `of`."""
        return tuple(
            layer in kind for layer in range(layers) for kind in (self.attention, self.mlp)
        )

    def at_depth(self, layers: int, depth: int) -> Sublayers:
        """The set of a model of `layers` layers, for one of `depth`: as large a share of the
        sublayers of either kind, as evenly as rounding allows at the same share of the depth."""
        kinds = (_stretched(kind, layers, depth) for kind in (self.attention, self.mlp))
        return Sublayers(*kinds)


def _stretched(chosen: frozenset[int], layers: int, depth: int) -> frozenset[int]:
    """Layer x of `depth` is in where the number of chosen ones before its end, read off at the same
    share of the depth, scaled and rounded, is larger than before its beginning."""
    before = np.cumsum([0, *(layer in chosen for layer in range(layers))])
    ends = np.interp(np.arange(depth + 1) * layers / depth, np.arange(layers + 1), before)
    numbers = np.floor(np.round(ends * depth / layers, 6) + 0.5)
    return frozenset(np.flatnonzero(np.diff(numbers) > 0).tolist())


NOTHING = Sublayers()


def check_left_out(left_out: Sublayers, layers: int) -> None:
    """Raise `EngineError` for sublayers beyond the model's, and where none would be left."""
    beyond = sorted(x for x in left_out.attention | left_out.mlp if not 0 <= x < layers)
    if beyond:
        raise EngineError(f"layer {beyond[0]} is left out: expected 0 to {layers - 1}")
    if len(left_out) == 2 * layers:
        raise EngineError(f"all sublayers of {layers} layers are left out: expected one to be kept")
