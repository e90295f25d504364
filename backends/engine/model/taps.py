"""Hidden states after some layers, kept by slot and position while a model decodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backends.engine.model import memory as host
from backends.engine.model.architecture import EngineError


@dataclass(frozen=True, slots=True)
class Taps:
    """Where states are read, and what was read."""

    layers: tuple[int, ...]
    """Numbers of layers that a state has been through: 0 is the embedding."""
    states: Tensor
    """(slots, positions, len(layers), width); of one slot, (positions, len(layers), width)."""
    memory: host.SparseMemory | None = None
    """That of the states of all slots on a CPU."""

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
        """Zeros; on a CPU what was written is resident (`SparseMemory`)."""
        shape = slots, positions, len(layers), width
        if torch.device(device).type != "cpu":
            return cls(tuple(layers), torch.zeros(shape, dtype=dtype, device=device))
        memory = host.SparseMemory(torch.Size(shape).numel() * dtype.itemsize)
        return cls(tuple(layers), torch.from_numpy(memory.bytes).view(dtype).view(shape), memory)

    def of(self, slot: int) -> Taps:
        """Those of one slot, the same memory."""
        return Taps(self.layers, self.states[slot])

    def release(self, slot: int, length: int) -> None:
        """The slot's sequence, of so many positions, is over: on a CPU what is beyond the
        `KEPT_BYTES` is given back."""
        first, end = (self.states[:count].nbytes for count in (slot, slot + 1))
        if self.memory is not None and self.states[slot, :length].nbytes > host.KEPT_BYTES:
            self.memory.give_back(first + host.KEPT_BYTES, end)

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
