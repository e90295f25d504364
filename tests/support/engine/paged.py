"""vLLM's paged caches as the tests of the fill see them."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.kernels.fill_cache import PagedCaches, prepare
from tests.support.engine.kernel_cases import DEVICE, assert_near, poisoned

BLOCKS, POSITIONS = 5, 40


def angles(head_dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """As vLLM's `cos_sin_cache`: cosines, then sines."""
    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2, device=DEVICE) / head_dim)
    table = torch.arange(POSITIONS, device=DEVICE)[:, None] * frequencies[None, :]
    return torch.cat([table.cos(), table.sin()], -1).to(dtype)


def layer_cache(
    layout: str, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """One layer's views of an allocation of its own, full of NaN."""
    if layout == "heads together":  # vLLM 0.32: [blocks, Hkv, block_size, 2 hd]
        whole = poisoned(BLOCKS, kv_heads, block_size, 2 * head_dim, dtype=dtype)
        keys, values = torch.split(whole.transpose(1, 2), head_dim, dim=-1)
        return keys, values
    if layout == "blocks first":  # [blocks, 2, block_size, Hkv, hd]
        keys, values = poisoned(BLOCKS, 2, block_size, kv_heads, head_dim, dtype=dtype).unbind(1)
        return keys, values
    # an address that is no multiple of 16, for stores of single elements
    whole = poisoned(1 + 2 * BLOCKS * block_size * kv_heads * head_dim, dtype=dtype)
    keys, values = whole[1:].view(2, BLOCKS, block_size, kv_heads, head_dim).unbind(0)
    return keys, values


def layer_caches(
    count: int, layout: str, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> PagedCaches:
    pairs = [layer_cache(layout, block_size, kv_heads, head_dim, dtype) for _ in range(count)]
    return prepare([keys for keys, _ in pairs], [values for _, values in pairs])


def assert_same(got: PagedCaches, wanted: PagedCaches, dtype: torch.dtype) -> None:
    """Equal caches up to rounding, and NaN where the other has NaN."""
    for mine, other in ((got.keys, wanted.keys), (got.values, wanted.values)):
        for layer, (one, two) in enumerate(zip(mine, other, strict=True)):
            assert torch.equal(one.isnan(), two.isnan()), f"layer {layer}: other rows written"
            if not one.isnan().all():
                assert_near(one.nan_to_num(), two.nan_to_num(), dtype)
