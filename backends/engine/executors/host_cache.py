"""The key-value cache of the C++ kernels: reserved whole, resident where it was written.

Each slot's keys and values lie contiguous for every layer, as the kernels read them, for as many
positions as a sequence may have; the operating system gives a page where one is written. So 32
slots of 4,096 positions cost what their sequences fill, and no kernel follows a table of blocks.
"""

from __future__ import annotations

import torch

from backends.engine.model import memory
from backends.engine.model.architecture import Architecture


class HostCache:
    """Keys and values of all layers, each (slots, kv_heads, max_len, head_dim) by layer.

    Args:
        architecture: the model's shape.
        slots: sequences.
        max_len: positions of each.
        dtype: the model's.

    Raises:
        MemoryError: when so much cannot even be reserved.
    """

    def __init__(
        self, architecture: Architecture, slots: int, max_len: int, dtype: torch.dtype
    ) -> None:
        position = architecture.head_dim * dtype.itemsize
        self._position_bytes, self._head_bytes = position, position * max_len
        self._slot_bytes = self._head_bytes * architecture.kv_heads
        self._table_bytes = self._slot_bytes * slots
        self._tables = 2 * architecture.layers
        all_heads = position * architecture.kv_heads * self._tables
        self._kept = memory.KEPT_BYTES // all_heads
        self._memory = memory.SparseMemory(self._table_bytes * self._tables)
        self._address = int(self._memory.bytes.ctypes.data)

    def layer(self, number: int) -> tuple[int, int]:
        """Where a layer's keys and values begin."""
        keys = self._address + 2 * number * self._table_bytes
        return keys, keys + self._table_bytes

    def release(self, slot: int, length: int) -> None:
        """The slot's sequence, of so many positions, is over: give back what is beyond the kept."""
        if length <= self._kept:
            return
        for table in range(self._tables):
            start = table * self._table_bytes + slot * self._slot_bytes
            for head in range(start, start + self._slot_bytes, self._head_bytes):
                first = head + self._kept * self._position_bytes
                self._memory.give_back(first, head + self._head_bytes)
