"""Rotary position embedding (Su et al. 2021, in Hugging Face's half-split layout) of the queries
and keys, and the write of K and V into the cache, for rows anywhere in any slot."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.kernels.triton_runtime import check, jit, launch, power_of_2, tl


def rope_cache_reference(
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    slots: Tensor,
    positions: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    bias: Tensor | None = None,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    epsilon: float = 0.0,
) -> Tensor:
    """Arguments as for `rope_cache`; writes K and V, returns the rotated queries [rows, H, hd]."""
    kv_heads, head_dim = keys.shape[1], keys.shape[3]
    wide = qkv.float() if bias is None else qkv.float() + bias.float()
    wide = wide.view(len(qkv), -1, head_dim)
    heads = wide.shape[1] - 2 * kv_heads
    parts = list(torch.split(wide, [heads, kv_heads, kv_heads], dim=1))
    where = positions.long()
    cos, sin = cosine[where][:, None], sine[where][:, None]
    for index, gain in enumerate((q_norm, k_norm)):
        x = parts[index]
        if gain is not None:
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * gain
        first, second = x.chunk(2, dim=-1)
        parts[index] = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    query, key, value = (part.to(qkv.dtype) for part in parts)
    keys[slots.long(), :, where] = key
    values[slots.long(), :, where] = value
    return query


@jit
def rope_cache_kernel(
    qkv: tl.tensor,
    bias: tl.tensor,
    q_norm: tl.tensor,
    k_norm: tl.tensor,
    cosine: tl.tensor,
    sine: tl.tensor,
    slots: tl.tensor,
    positions: tl.tensor,
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    epsilon: tl.tensor,
    max_len: tl.tensor,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    half_block: tl.constexpr,
) -> None:
    """One program per row and head: queries first, then keys, then values."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    half: tl.constexpr = head_dim // 2
    columns = tl.arange(0, half_block)
    inside = columns < half
    start = (row * (heads + 2 * kv_heads) + head) * head_dim + columns
    first = tl.load(qkv + start, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(qkv + start + half, mask=inside, other=0.0).to(tl.float32)
    if bias is not None:
        added = bias + head * head_dim + columns
        first += tl.load(added, mask=inside, other=0.0).to(tl.float32)
        second += tl.load(added + half, mask=inside, other=0.0).to(tl.float32)
    slot = tl.load(slots + row).to(tl.int64)
    position = tl.load(positions + row).to(tl.int64)
    dtype = query.dtype.element_ty
    if head < heads + kv_heads:
        if q_norm is not None:
            scale = tl.rsqrt(tl.sum(first * first + second * second, 0) / head_dim + epsilon)
            low = tl.load(q_norm + columns, mask=inside, other=0.0)
            high = tl.load(q_norm + half + columns, mask=inside, other=0.0)
            if head >= heads:
                low = tl.load(k_norm + columns, mask=inside, other=0.0)
                high = tl.load(k_norm + half + columns, mask=inside, other=0.0)
            first = first * scale * low
            second = second * scale * high
        cos = tl.load(cosine + position * half + columns, mask=inside, other=0.0)
        sin = tl.load(sine + position * half + columns, mask=inside, other=0.0)
        low = first * cos - second * sin
        high = second * cos + first * sin
        if head < heads:
            place = query + (row * heads + head) * head_dim + columns
        else:
            cell = (slot * kv_heads + head - heads) * max_len + position
            place = keys + cell * head_dim + columns
        tl.store(place, low.to(dtype), mask=inside)
        tl.store(place + half, high.to(dtype), mask=inside)
    else:
        cell = (slot * kv_heads + head - heads - kv_heads) * max_len + position
        place = values + cell * head_dim + columns
        tl.store(place, first.to(dtype), mask=inside)
        tl.store(place + half, second.to(dtype), mask=inside)


def rope_cache(
    qkv: Tensor,
    cosine: Tensor,
    sine: Tensor,
    slots: Tensor,
    positions: Tensor,
    keys: Tensor,
    values: Tensor,
    query: Tensor,
    *,
    bias: Tensor | None = None,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    epsilon: float = 0.0,
) -> None:
    """Row r at position p = positions[r] of slot s = slots[r]: query[r] = rope(norm(q)),
    keys[s, :, p] = rope(norm(k)), values[s, :, p] = v, where q, k, v are parts of qkv[r] + bias.

    qkv [rows, (H + 2 Hkv) hd], query [rows, H, hd], keys and values [slots, Hkv, max_len, hd]: of
    one dtype (bf16, fp16, fp32), as is bias [(H + 2 Hkv) hd] (Qwen2); cosine and sine
    [>= max_len, hd / 2], q_norm and k_norm [hd] (Qwen3, RMSNorm per head) float32; slots and
    positions [rows] int32. Computed in float32, rounded once. Raises EngineError for misfits.
    """
    rows, heads, head_dim = query.shape
    kv_heads, max_len = keys.shape[1], keys.shape[2]
    columns = (heads + 2 * kv_heads) * head_dim
    if head_dim % 2 or (q_norm is None) != (k_norm is None) or cosine.shape[0] < max_len:
        raise EngineError(
            f"kernel rope_cache: expected an even head size (got {head_dim}), both norms or none, "
            f"and {max_len} rows of angles (got {cosine.shape[0]})"
        )
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {
        "qkv": (qkv, (rows, columns)),
        "cosine": (cosine, (cosine.shape[0], head_dim // 2)),
        "sine": (sine, (cosine.shape[0], head_dim // 2)),
        "slots": (slots, (rows,)),
        "positions": (positions, (rows,)),
        "query": (query, (rows, heads, head_dim)),
        "keys": (keys, (keys.shape[0], kv_heads, max_len, head_dim)),
        "values": (values, (keys.shape[0], kv_heads, max_len, head_dim)),
    }
    if bias is not None:
        shapes["bias"] = (bias, (columns,))
    if q_norm is not None and k_norm is not None:
        shapes |= {"q_norm": (q_norm, (head_dim,)), "k_norm": (k_norm, (head_dim,))}
    check("rope_cache", shapes)
    tensors = (qkv, bias, q_norm, k_norm, cosine, sine, slots, positions, query, keys, values)
    launch(
        rope_cache_kernel,
        (rows, heads + 2 * kv_heads),
        *tensors,
        epsilon,
        max_len,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        half_block=power_of_2(head_dim // 2),
        num_warps=1,
    )
