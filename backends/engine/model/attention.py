"""Causal attention over whole sequences, in plain torch and in bounded memory."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

SCORES = {"cpu": 1 << 19, "cuda": 1 << 26}
"""Attention scores held at a time; on a CPU they stay in its cache."""
FEWEST, MOST = 8, 128
"""Queries whose scores are held at a time: a power of two. Numbers of keys are rounded up to the
most, for a CPU's library compiles and keeps a product for every shape that it meets."""


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of the last positions of each sequence over all of them.

    On a GPU by PyTorch's fused operator wherever that has a kernel which keeps no score matrix;
    cuDNN's is off in this process from then on.
    Elsewhere the products are written out, for a bounded number of queries at a time: scores in
    float32, which on a CPU at 300 to 1,000 positions in bfloat16 takes 0.7 times as long as the
    fused operator and errs as little.

    Args:
        queries: (batch, heads, m, head_dim), m <= n.
        keys: (batch, kv_heads, n, head_dim).
        values: the same.

    Returns:
        (batch, heads, m, head_dim) in the queries' dtype.
    """
    batch, heads, m, size = queries.shape
    if _has_flash(queries) and m in (1, keys.shape[2]):
        # PyTorch takes cuDNN's first on Hopper, which builds a plan for every length that it has
        # not seen: 82 ms for each new length of a prompt on an H200, of any model
        torch.backends.cuda.enable_cudnn_sdp(False)
        return functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=m > 1, enable_gqa=heads != keys.shape[1]
        )
    flat = (part.flatten(0, 1) for part in (queries, keys, values))
    return _written_out(*flat).view(batch, heads, m, size)


def _has_flash(queries: Tensor) -> bool:
    """Whether PyTorch has its flash kernel: without it, it builds all scores at once."""
    return (
        queries.is_cuda
        and queries.dtype in (torch.bfloat16, torch.float16)
        and queries.shape[-1] % 8 == 0
        and queries.shape[-1] <= 256
        and torch.cuda.get_device_capability(queries.device) >= (8, 0)
    )


def _written_out(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """`attend` for (heads, m, size) queries and (kv_heads, n, size) keys and values."""
    heads, m, size = queries.shape
    kv_heads, n, _ = keys.shape
    chunk = MOST
    while chunk > FEWEST and chunk * heads * n > SCORES[queries.device.type]:
        chunk //= 2
    wide, keys = queries.float() * size**-0.5, keys.float().transpose(1, 2)
    if values.dtype == torch.float16:  # no fast products on a CPU
        values = values.float()
    later = torch.ones(chunk, chunk + MOST, dtype=torch.bool, device=queries.device).triu(1)
    scratch = torch.empty(heads * min(chunk, m) * n, device=queries.device)
    mixed = torch.empty_like(queries, memory_format=torch.contiguous_format)
    for start in range(0, m, chunk):
        count, first = min(chunk, m - start), n - m + start
        seen = min(n, -(-(first + count) // MOST) * MOST)
        rows = wide[:, start : start + count].reshape(kv_heads, -1, size)
        scores = scratch[: heads * count * seen].view(kv_heads, -1, seen)
        torch.bmm(rows, keys[:, :, :seen], out=scores)
        latest = scores.view(heads, count, seen)[:, :, first:]
        latest.masked_fill_(later[:count, : seen - first], -torch.inf)
        torch.softmax(scores, dim=-1, out=scores)
        part = torch.bmm(scores.to(values.dtype), values[:, :seen])
        mixed[:, start : start + count] = part.view(heads, count, size)
    return mixed
