"""The key-value cache: every slot's place is there from the start, nothing is ever copied."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from backends.engine.model.architecture import Architecture
from backends.engine.model.memory import SparseMemory


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys (rotated) and values, each (layers, slots + 1, kv_heads, max_len, head_dim).

    The slot after the last one is scratch: padded rows may write there. What was not written is
    uninitialised memory, NaN included; forgetting positions is a matter of not reading them.
    On a GPU all of it is reserved; on a CPU what was written is resident (`SparseMemory`).
    """

    keys: Tensor
    values: Tensor

    @classmethod
    def allocate(
        cls,
        architecture: Architecture,
        slots: int,
        max_len: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> KVCache:
        """An empty cache for `slots` sequences of up to `max_len` positions."""
        shape = (
            *(architecture.layers, slots + 1, architecture.kv_heads),
            *(max_len, architecture.head_dim),
        )
        if torch.device(device).type != "cpu":
            return cls(*(torch.empty(shape, dtype=dtype, device=device) for _ in range(2)))
        size = torch.Size(shape).numel() * dtype.itemsize
        memories = (torch.from_numpy(SparseMemory(size).bytes) for _ in range(2))
        return cls(*(memory.view(dtype).view(shape) for memory in memories))
