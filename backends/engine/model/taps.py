"""Hidden states after some layers, kept by slot and position while a model decodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backends.engine.model.architecture import EngineError


@dataclass(frozen=True, slots=True)
class Taps:
    """Where states are read, and what was read."""

    layers: tuple[int, ...]
    """Numbers of layers that a state has been through: 0 is the embedding."""
    states: Tensor
    """(slots, positions, len(layers), width); of one slot, (positions, len(layers), width)."""

    @classmethod
    def allocate(
        cls,
        layers: Sequence[int],
        slots: int,
        positions: int,
        width: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> Taps:
        """Zeros; on a CPU memory is taken as it is filled."""
        states = torch.zeros(slots, positions, len(layers), width, dtype=dtype, device=device)
        return cls(tuple(layers), states)

    def of(self, slot: int) -> Taps:
        """Those of one slot, the same memory."""
        return Taps(self.layers, self.states[slot])

    def put(self, layers: int, places: tuple[Tensor | slice, ...], x: Tensor) -> None:
        """Keep the states (n, width) after so many layers at n places, where they are wanted."""
        if layers in self.layers:
            self.states[*places, self.layers.index(layers)] = x.to(self.states.dtype)

    def by_depth(self, depth: int) -> NDArray[np.int32]:
        """(depth + 1,): by number of layers the place of its states, -1 where none are kept.

        Raises:
            EngineError: for a layer that a model of this depth has not got, or one twice.
        """
        places = np.full(depth + 1, -1, np.int32)
        for place, layers in enumerate(self.layers):
            if not 0 <= layers <= depth or places[layers] >= 0:
                raise EngineError(
                    f"states after layers {list(self.layers)}: expected different ones, 0 "
                    f"to {depth}"
                )
            places[layers] = place
        return places
