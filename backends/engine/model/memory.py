"""Memory of the host as the engine needs it: aligned, or resident only where it was written."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Bytes = NDArray[np.uint8]
ALIGNMENT = 64
"""Bytes of a cache line, and of the widest vector."""


MAPPED = 1 << 20
"""From here on, memory is a mapping of its own, in huge pages where the system has them."""
KEPT_BYTES = 4 << 20
"""What a slot keeps for its next sequence: pages that are there already are faster than new ones,
and short sequences never pay for giving any back."""
SPARSE = 64 << 20
"""Scratch from here on has room for positions that sequences hardly reach: what is written of it is
resident."""
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_NORESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE, which this Python does not name."""


def aligned(size: int) -> Bytes:
    """So many bytes, not initialised, that begin at a cache line.

    A mapping is given back whole, while an allocator's heap keeps the holes that buffers leave
    between what is in use: 150 MB after reading a model of 2.4 GB.
    """
    if size >= MAPPED:
        mapped = mmap.mmap(-1, size, flags=_FLAGS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            mapped.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(mapped, np.uint8)
    memory: Bytes = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def tensor_of(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A tensor in `aligned` memory."""
    memory = aligned(torch.Size(shape).numel() * dtype.itemsize)
    return torch.from_numpy(memory).view(dtype).view(*shape)


class SparseMemory:
    """Zeros of which only the written pages are resident.

    The layout of a tensor stays contiguous in virtual memory while the operating system pages it
    in, as vAttention (Prabhu et al., 2024) does for the KV cache on GPUs. No huge pages: one
    number written would make 2 MiB resident.

    Raises:
        MemoryError: when there is no room for so much, even unwritten.
    """

    def __init__(self, size: int) -> None:
        try:
            self._map = mmap.mmap(-1, size, flags=_FLAGS | _NORESERVE)
        except OSError as error:
            raise MemoryError(f"{size / 2**30:.1f} GiB of virtual memory: {error}") from None
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            self._map.madvise(mmap.MADV_NOHUGEPAGE)
        self.bytes: Bytes = np.frombuffer(self._map, np.uint8)

    def give_back(self, start: int, end: int) -> None:
        """Let go of the whole pages between two bytes; they read as zeros from now on."""
        start, end = (
            -(-start // mmap.PAGESIZE) * mmap.PAGESIZE,
            end // mmap.PAGESIZE * mmap.PAGESIZE,
        )
        if start < end and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start, end - start)


class KeptMemory:
    """Numbers that native code reads, alive as long as this is."""

    def __init__(self) -> None:
        self._held: list[object] = []

    def hold(self, *things: object) -> None:
        """Whatever they are."""
        self._held += things

    def vector(self, tensor: Tensor | None) -> int | None:
        """Where a tensor's numbers lie in float32; None where there is no tensor."""
        if tensor is None:
            return None
        kept = tensor.detach().float().contiguous()
        self.hold(kept)
        return kept.data_ptr()

    def scratch(self, size: int) -> int:
        """Where so many fresh bytes lie, from a cache line on."""
        memory = aligned(size) if size < SPARSE else SparseMemory(size).bytes
        self.hold(memory)
        return int(memory.ctypes.data)

    def clear(self) -> None:
        """Let go of all."""
        self._held.clear()
