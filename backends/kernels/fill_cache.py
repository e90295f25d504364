"""Filling the KV cache after an early exit: from one matrix product over all remaining layers,
RoPE on the keys and the scatter of keys and values into every layer's paged cache, in one launch
(the "KV recomputation" of 'An Efficient Inference Framework for Early-exit Large Language Models',
with the projections of the layers stacked).

The caches are those of vLLM: one allocation per layer, keys and values strided views of it. What
differs between layers is an address alone, so the kernel takes a table of addresses, made once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.kernels.triton_runtime import INTERPRETED, check, jit, launch, power_of_2, tl

ALIGNMENT = 16
"""Bytes of one vector store."""


@dataclass(frozen=True, slots=True)
class PagedCaches:
    """All layers' caches and the table of their addresses; stays valid while they stay in place."""

    keys: tuple[Tensor, ...]
    """One view [blocks, block_size, Hkv, hd] per layer, of any strides but 1 in the last place."""
    values: tuple[Tensor, ...]
    addresses: Tensor
    """[layers, 2] int64 on the caches' device, the last layer first: of its keys, its values."""
    aligned: bool
    """Whether every address and stride allows stores of 16 bytes."""


def prepare(keys: Sequence[Tensor], values: Sequence[Tensor]) -> PagedCaches:
    """The table for `fill_cache`, for all layers of a model in their order.

    Every view must have the same shape [blocks, block_size, Hkv, hd], strides, dtype (bf16, fp16 or
    fp32; no fp8 cache) and device; the head size is even. Raises EngineError where they do not.
    """
    every = (*keys, *values)
    if not every or len(keys) != len(values):
        raise EngineError(f"kernel fill_cache: {len(keys)} key caches, {len(values)} value caches")
    first = every[0]
    if first.dim() != 4 or first.stride(3) != 1 or first.shape[3] % 2:
        raise EngineError(
            "kernel fill_cache: expected caches [blocks, block_size, Hkv, even hd] with heads in "
            f"one piece, got shape {list(first.shape)} and strides {list(first.stride())}"
        )
    wanted = _traits(first)
    for index, cache in enumerate(every):
        if _traits(cache) != wanted:
            kind, layer = ("keys", "values")[index // len(keys)], index % len(keys)
            raise EngineError(
                f"kernel fill_cache: {kind} of layer {layer} are {_traits(cache)}, not {wanted}"
            )
    rows = [[k.data_ptr(), v.data_ptr()] for k, v in zip(keys, values, strict=True)][::-1]
    steps = [n * first.element_size() for n in (*first.stride()[:3], first.shape[3] // 2)]
    aligned = not any(n % ALIGNMENT for n in itertools.chain(steps, *rows))
    table = torch.tensor(rows, dtype=torch.int64, device=first.device)
    return PagedCaches(tuple(keys), tuple(values), table, aligned)


def _traits(cache: Tensor) -> tuple[list[int], list[int], torch.dtype, torch.device]:
    return list(cache.shape), list(cache.stride()), cache.dtype, cache.device


def fill_cache_reference(
    kv: Tensor, positions: Tensor, cos_sin: Tensor, slots: Tensor, caches: PagedCaches
) -> None:
    """Arguments and effect as for `fill_cache`; layer by layer, computed in float32."""
    block_size, kv_heads, head_dim = caches.keys[0].shape[1:]
    layers = kv.shape[1] // (2 * kv_heads * head_dim)
    real = slots >= 0
    where = slots[real].long()
    wide = kv[: len(slots)][real].float().view(len(where), layers, 2, kv_heads, head_dim)
    cos, sin = cos_sin[positions[: len(slots)][real].long()].float()[:, None, None].chunk(2, -1)
    first, second = wide[:, :, 0].chunk(2, -1)
    keys = torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(kv.dtype)
    values = wide[:, :, 1].to(kv.dtype)
    block, row = where // block_size, where % block_size
    for index in range(layers):
        layer = len(caches.keys) - layers + index
        caches.keys[layer][block, row] = keys[:, index]
        caches.values[layer][block, row] = values[:, index]


@jit
def fill_cache_kernel(
    kv: tl.tensor,
    positions: tl.tensor,
    cos_sin: tl.tensor,
    slots: tl.tensor,
    addresses: tl.tensor,
    columns: tl.tensor,
    block_step: tl.tensor,
    row_step: tl.tensor,
    head_step: tl.tensor,
    block_size: tl.constexpr,
    kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    head_block: tl.constexpr,
    half_block: tl.constexpr,
    aligned: tl.constexpr,
) -> None:
    """One program per row, layer (the last first) and part (keys, then values)."""
    row = tl.program_id(0)
    layer = tl.program_id(1) // 2
    part = tl.program_id(1) % 2
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    half: tl.constexpr = head_dim // 2
    dims = tl.arange(0, half_block)
    heads = tl.arange(0, head_block)
    inside = (heads < kv_heads)[:, None] & (dims < half)[None, :]
    end = (row.to(tl.int64) + 1) * columns
    start = kv + end - (2 * layer + 2 - part) * (kv_heads * head_dim)
    source = start + heads[:, None] * head_dim + dims[None, :]
    first = tl.load(source, mask=inside, other=0.0)
    second = tl.load(source + half, mask=inside, other=0.0)
    address = tl.load(addresses + 2 * layer + part)
    cache = address.to(tl.pointer_type(kv.dtype.element_ty))
    if aligned:
        cache = tl.multiple_of(cache, 16)
    cell = cache + slot // block_size * block_step + slot % block_size * row_step
    target = cell + heads[:, None] * head_step + dims[None, :]
    if part == 0:
        angles = cos_sin + tl.load(positions + row).to(tl.int64) * head_dim + dims
        cos = tl.load(angles, mask=dims < half, other=0.0).to(tl.float32)[None, :]
        sin = tl.load(angles + half, mask=dims < half, other=0.0).to(tl.float32)[None, :]
        low = first.to(tl.float32)
        high = second.to(tl.float32)
        first = (low * cos - high * sin).to(first.dtype)
        second = (high * cos + low * sin).to(second.dtype)
    tl.store(target, first, mask=inside)
    tl.store(target + half, second, mask=inside)


def fill_cache(
    kv: Tensor, positions: Tensor, cos_sin: Tensor, slots: Tensor, caches: PagedCaches
) -> None:
    """For row r at slot s = slots[r] >= 0, and each of the last m of `caches`' layers: its keys at
    s = rope(K, positions[r]), its values at s = V; everything else is left as it is.

    kv [>= T, 2 m S] of the caches' dtype, S = Hkv hd: for each of the m layers in order K, then V;
    m >= 1 follows from its width. positions [>= T] and slots [T] are integers (int32 or int64); a
    slot is block * block_size + row, -1 for a padded row. cos_sin [positions, hd], of any dtype:
    cosines, then sines of the hd / 2 pairs (vLLM's `rotary_emb.cos_sin_cache`, in its neox style
    over whole heads). Computed in float32, rounded once. On a CPU the reference runs, except
    through the interpreter. Raises EngineError for what does not fit.
    """
    _check(kv, positions, cos_sin, slots, caches)
    if kv.device.type == "cpu" and not INTERPRETED:
        fill_cache_reference(kv, positions, cos_sin, slots, caches)
    elif len(slots) > 0:
        _launch(kv, positions, cos_sin, slots, caches)


def _launch(
    kv: Tensor, positions: Tensor, cos_sin: Tensor, slots: Tensor, caches: PagedCaches
) -> None:
    cache = caches.keys[0]
    _, block_size, kv_heads, head_dim = cache.shape
    columns = kv.shape[1]
    layers = columns // (2 * kv_heads * head_dim)
    head_block, half_block = power_of_2(kv_heads), power_of_2(head_dim // 2)
    launch(
        fill_cache_kernel,
        (len(slots), 2 * layers),
        *(kv, positions, cos_sin, slots, caches.addresses, columns, *cache.stride()[:3]),
        block_size=block_size,
        kv_heads=kv_heads,
        head_dim=head_dim,
        head_block=head_block,
        half_block=half_block,
        aligned=caches.aligned,
        num_warps=max(1, min(8, head_block * half_block // 256)),
    )


def _check(
    kv: Tensor, positions: Tensor, cos_sin: Tensor, slots: Tensor, caches: PagedCaches
) -> None:
    cache, rows = caches.keys[0], len(slots)
    _, _, kv_heads, head_dim = cache.shape
    layers, rest = divmod(kv.shape[-1], 2 * kv_heads * head_dim)
    if rest or not 1 <= layers <= len(caches.keys) or kv.dtype != cache.dtype:
        raise EngineError(
            f"kernel fill_cache: kv is {kv.dtype} with {kv.shape[-1]} columns, expected "
            f"{cache.dtype} and {2 * kv_heads * head_dim} for each of 1 to {len(caches.keys)} "
            "layers"
        )
    if len(kv) < rows or len(positions) < rows or cos_sin.shape[1] != head_dim:
        raise EngineError(
            f"kernel fill_cache: {rows} slots of heads of {head_dim}, but {len(kv)} rows, "
            f"{len(positions)} positions and {cos_sin.shape[1]} angles"
        )
    if kv.device.type == "cpu" and not INTERPRETED:
        return
    given: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "kv": (kv, (len(kv), kv.shape[-1])),
        "positions": (positions, (len(positions),)),
        "slots": (slots, (rows,)),
        "cos_sin": (cos_sin, (len(cos_sin), head_dim)),
        "addresses": (caches.addresses, (len(caches.keys), 2)),
    }
    check("fill_cache", given)
