"""The fill of an early exit on a CPU, after its matrix product: one call into the C++ kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.kernels.cpu import native
from backends.kernels.cpu.native_checks import DTYPES


def arrange(
    both: Tensor,
    positions: Tensor,
    cos_sin: Tensor,
    slots: Tensor,
    shape: tuple[int, int, int],
    slots_per_layer: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values of several layers, rotated and laid out for one write into their caches.

    Args:
        both: (rows, 2 m S) in bf16, fp16 or fp32: of each of m layers its keys, then its
            values, S = Hkv hd.
        positions: (rows,) int64.
        cos_sin: (positions, hd) float32, cosines then sines, for GPT-NeoX's pairing of halves.
        slots: (rows,) int64, of the first layer; negative ones stay so.
        shape: (m, Hkv, hd).
        slots_per_layer: how far the next layer's slots are.

    Returns:
        Keys and values (rows m, Hkv, hd), row by row and layer by layer, and their slots (rows m,).
    """
    layers, kv_heads, head_dim = shape
    rows = len(both)
    assert both.shape == (rows, 2 * layers * kv_heads * head_dim)
    assert positions.dtype == slots.dtype == torch.int64
    assert len(positions) >= rows <= len(slots)
    assert all(tensor.is_contiguous() for tensor in (positions, slots, cos_sin))
    keys = torch.empty(rows * layers, kv_heads, head_dim, dtype=both.dtype)
    values, places = torch.empty_like(keys), torch.empty(rows * layers, dtype=torch.int64)
    both = both.contiguous()
    native.library().arrange_fill(
        DTYPES[both.dtype], both.data_ptr(), rows, *shape, positions.data_ptr(),
        cos_sin.data_ptr(), slots.data_ptr(), slots_per_layer,
        keys.data_ptr(), values.data_ptr(), places.data_ptr(),
    )  # fmt: skip
    return keys, values, places
