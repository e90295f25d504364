"""Attention of a few query rows over the KV cache, split over the keys (Flash-Decoding, Dao et al.
2023): every split keeps its maximum, sum of exponentials and weighted values, and a second kernel
combines them in the order of the splits.

The split has a fixed length, so that a row's result depends on its own position and keys alone. The
grid is fixed by max_len, since it must not change in a CUDA graph; programs beyond a row's length
leave at once. Rows do not share their loads of K and V: neighbours of one slot meet in the L2.

Rows of trees (`Branches`) find their last keys and values aside, in the same blocks and the same
order as if all were in the cache: addresses differ, sums do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.kernels.triton_runtime import INTERPRETED, check, jit, launch, power_of_2, tl

SPLIT = 128
"""Keys per split."""
KEY_BLOCK = 64
PART_BLOCK = 16
"""Splits that the second kernel reads at once."""
LOG2E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class AttentionScratch:
    """What the splits leave for the combination, float32."""

    partial: Tensor
    """[rows, H, splits, hd]"""
    maxima: Tensor
    """[rows, H, splits], base-2 logarithms"""
    sums: Tensor
    """[rows, H, splits]"""

    @classmethod
    def allocate(
        cls, rows: int, heads: int, head_dim: int, max_len: int, device: torch.device | str
    ) -> AttentionScratch:
        """For up to max_len positions per slot."""
        shape = (rows, heads, -(-max_len // SPLIT))
        partial = torch.empty(*shape, head_dim, dtype=torch.float32, device=device)
        maxima, sums = torch.empty(2, *shape, dtype=torch.float32, device=device)
        return cls(partial, maxima, sums)


@dataclass(frozen=True, slots=True)
class Branches:
    """Where the last keys and values of rows are that do not have them in the cache."""

    keys: Tensor
    """[1, Hkv, places, hd], like the cache's"""
    values: Tensor
    starts: Tensor
    """[rows] int32: the first position whose keys and values are aside, at most the row's own"""
    ways: Tensor
    """[levels, rows] int32: the place aside of the row's position starts + level"""


def attention_reference(
    query: Tensor, keys: Tensor, values: Tensor, slots: Tensor, positions: Tensor
) -> Tensor:
    """Arguments as for `attention`; row by row in float32, rounded once. [rows, H, hd]."""
    out = torch.empty_like(query)
    group = query.shape[1] // keys.shape[1]
    for row, (slot, position) in enumerate(zip(slots.tolist(), positions.tolist(), strict=True)):
        k = keys[slot, :, : position + 1].float().repeat_interleave(group, 0)
        v = values[slot, :, : position + 1].float().repeat_interleave(group, 0)
        scores = torch.einsum("hd,hnd->hn", query[row].float(), k) * query.shape[2] ** -0.5
        out[row] = torch.einsum("hn,hnd->hd", scores.softmax(-1), v).to(query.dtype)
    return out


@jit
def attention_split_kernel(
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    slots: tl.tensor,
    positions: tl.tensor,
    aside_keys: tl.tensor,
    aside_values: tl.tensor,
    starts: tl.tensor,
    ways: tl.tensor,
    places: tl.tensor,
    partial: tl.tensor,
    maxima: tl.tensor,
    sums: tl.tensor,
    scale: tl.tensor,
    max_len: tl.tensor,
    parts: tl.tensor,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    group_block: tl.constexpr,
    dim_block: tl.constexpr,
    split: tl.constexpr,
    key_block: tl.constexpr,
    widen: tl.constexpr,
) -> None:
    """One program per row, KV head and split: all query heads that share the KV head."""
    row = tl.program_id(0)
    kv_head = tl.program_id(1)
    part = tl.program_id(2)
    length = tl.load(positions + row) + 1
    if part * split >= length:
        return
    heads = tl.arange(0, group_block)
    dims = tl.arange(0, dim_block)
    real = (heads < group)[:, None] & (dims < head_dim)[None, :]
    head = (row * kv_heads + kv_head) * group + heads
    q = tl.load(query + head[:, None] * head_dim + dims[None, :], mask=real, other=0.0)
    if widen:
        q = q.to(tl.float32)
    maximum = tl.full([group_block], float("-inf"), tl.float32)
    total = tl.zeros([group_block], tl.float32)
    gathered = tl.zeros([group_block, dim_block], tl.float32)
    base = (tl.load(slots + row).to(tl.int64) * kv_heads + kv_head) * max_len * head_dim
    if starts is not None:
        first = tl.load(starts + row)
    for start in range(part * split, tl.minimum((part + 1) * split, length), key_block):
        at = start + tl.arange(0, key_block)
        cells = base + at[:, None] * head_dim + dims[None, :]
        held = (at < length)[:, None] & (dims < head_dim)[None, :]
        from_keys = keys + cells
        from_values = values + cells
        if starts is not None:
            level = at - first
            beside = (level >= 0) & (at < length)
            place = tl.load(ways + level * tl.num_programs(0) + row, mask=beside, other=0)
            others = (kv_head * places + place)[:, None] * head_dim + dims[None, :]
            from_keys = tl.where(beside[:, None], aside_keys + others, from_keys)
            from_values = tl.where(beside[:, None], aside_values + others, from_values)
        k = tl.load(from_keys, mask=held, other=0.0)
        v = tl.load(from_values, mask=held, other=0.0)
        if widen:
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where((at < length)[None, :], scores, float("-inf"))
        higher = tl.maximum(maximum, tl.max(scores, 1))
        shrink = tl.exp2(maximum - higher)
        weights = tl.exp2(scores - higher[:, None])
        total = total * shrink + tl.sum(weights, 1)
        fresh = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        gathered = gathered * shrink[:, None] + fresh
        maximum = higher
    cell = head * parts + part
    tl.store(maxima + cell, maximum, mask=heads < group)
    tl.store(sums + cell, total, mask=heads < group)
    tl.store(partial + cell[:, None] * head_dim + dims[None, :], gathered, mask=real)


@jit
def attention_combine_kernel(
    partial: tl.tensor,
    maxima: tl.tensor,
    sums: tl.tensor,
    positions: tl.tensor,
    out: tl.tensor,
    parts: tl.tensor,
    heads: tl.constexpr,
    head_dim: tl.constexpr,
    dim_block: tl.constexpr,
    split: tl.constexpr,
    all_parts: tl.constexpr,
    part_block: tl.constexpr,
) -> None:
    """One program per row and query head; reads only the splits that the row reaches."""
    row = tl.program_id(0)
    head = row * heads + tl.program_id(1)
    count = tl.load(positions + row) // split + 1
    everything = tl.arange(0, all_parts)
    tops = tl.load(maxima + head * parts + everything, mask=everything < count, other=float("-inf"))
    top = tl.max(tops, 0)
    dims = tl.arange(0, dim_block)
    total = 0.0
    gathered = tl.zeros([dim_block], tl.float32)
    for start in range(0, count, part_block):
        at = start + tl.arange(0, part_block)
        held = at < count
        cells = head * parts + at
        weights = tl.exp2(tl.load(maxima + cells, mask=held, other=float("-inf")) - top)
        total += tl.sum(tl.load(sums + cells, mask=held, other=0.0) * weights, 0)
        tile = partial + cells[:, None] * head_dim + dims[None, :]
        inside = held[:, None] & (dims < head_dim)[None, :]
        gathered += tl.sum(tl.load(tile, mask=inside, other=0.0) * weights[:, None], 0)
    y = (gathered / total).to(out.dtype.element_ty)
    tl.store(out + head * head_dim + dims, y, mask=dims < head_dim)


def attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    positions: Tensor,
    scratch: AttentionScratch,
    out: Tensor,
    reach: int | None = None,
    branches: Branches | None = None,
) -> None:
    """out[r] = softmax(query[r] keys[s, :, :p + 1]^T / sqrt(hd)) values[s, :, :p + 1], where
    s = slots[r] and p = positions[r]; query head h reads KV head h // (H / Hkv).

    query and out [rows, H, hd], keys and values [slots, Hkv, max_len, hd]: of one dtype (bf16,
    fp16, fp32); slots and positions [rows] int32; head sizes to 256. Cache rows after p are never
    read. No position is beyond `reach` - 1, for which the scratch is (None: max_len): programs for
    splits that no row has cost time. With `branches` rows read their last keys and values there, of
    the cache's dtype. Raises EngineError for what does not fit.
    """
    parts = -(-(reach or keys.shape[2]) // SPLIT)
    _check(query, keys, values, slots, positions, scratch, out, parts)
    aside = (None,) * 5 if branches is None else _of_branches(branches, len(query), keys)
    rows, heads, head_dim = query.shape
    kv_heads, max_len = keys.shape[1], keys.shape[2]
    group, dim_block = heads // kv_heads, max(16, power_of_2(head_dim))
    left = (scratch.partial, scratch.maxima, scratch.sums)
    launch(
        attention_split_kernel,
        (rows, kv_heads, parts),
        *(query, keys, values, slots, positions, *aside, *left),
        *(head_dim**-0.5 * LOG2E, max_len, parts),
        kv_heads=kv_heads,
        group=group,
        head_dim=head_dim,
        group_block=max(16, power_of_2(group)),
        dim_block=dim_block,
        split=SPLIT,
        key_block=KEY_BLOCK,
        widen=INTERPRETED,
        num_warps=4,
        num_stages=2,
    )
    launch(
        attention_combine_kernel,
        (rows, heads),
        *(*left, positions, out, parts),
        heads=heads,
        head_dim=head_dim,
        dim_block=dim_block,
        split=SPLIT,
        all_parts=power_of_2(parts),
        part_block=PART_BLOCK,
        num_warps=4,
    )


def _check(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    positions: Tensor,
    scratch: AttentionScratch,
    out: Tensor,
    parts: int,
) -> None:
    rows, heads, head_dim = query.shape
    kv_heads = keys.shape[1]
    if heads % kv_heads or head_dim > 256:
        raise EngineError(
            f"kernel attention: {heads} heads over {kv_heads} KV heads of size {head_dim}; "
            "expected a multiple and a size of at most 256"
        )
    cache = (keys.shape[0], kv_heads, keys.shape[2], head_dim)
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "query": (query, (rows, heads, head_dim)),
        "out": (out, (rows, heads, head_dim)),
        "keys": (keys, cache),
        "values": (values, cache),
        "slots": (slots, (rows,)),
        "positions": (positions, (rows,)),
        "partial": (scratch.partial, (rows, heads, parts, head_dim)),
        "maxima": (scratch.maxima, (rows, heads, parts)),
        "sums": (scratch.sums, (rows, heads, parts)),
    }
    check("attention", shapes)


def _of_branches(branches: Branches, rows: int, keys: Tensor) -> tuple[Tensor | int, ...]:
    """What the kernel is given of them, checked."""
    if {branches.keys.dtype, branches.values.dtype} != {keys.dtype}:
        raise EngineError(f"kernel attention: branches of {branches.keys.dtype}, not {keys.dtype}")
    shape = (1, keys.shape[1], branches.keys.shape[2], keys.shape[3])
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "keys aside": (branches.keys, shape),
        "values aside": (branches.values, shape),
        "starts": (branches.starts, (rows,)),
        "ways": (branches.ways, (len(branches.ways), rows)),
    }
    check("attention", shapes)
    places = branches.starts, branches.ways, branches.keys.shape[2]
    return branches.keys, branches.values, *places
