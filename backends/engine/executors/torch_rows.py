"""Rows of the torch executor's products, and the attention of one of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TorchRows:
    """Rows of one product, padded with rows of the scratch slot."""

    slots: Tensor
    """int64 (rows,), on the device; so are the other two."""
    positions: Tensor
    tokens: Tensor
    real: list[tuple[int, int]]
    """Slot and position of the rows that are asked for, which come first."""


def attend_one(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of one row in float32.

    Keys and values are copied: a product's bits may depend on how its operands lie in memory,
    which differs between the slots of a cache.

    Args:
        query: (heads, head_dim).
        keys: (kv_heads, n, head_dim).
        values: the same.

    Returns:
        float32 (heads * head_dim,).
    """
    keys, values = (
        part.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        for part in (keys, values)
    )
    rows = (query.float() * query.shape[-1] ** -0.5).view(len(keys), -1, query.shape[-1])
    weights = torch.softmax(torch.bmm(rows, keys.transpose(1, 2)), dim=-1)
    return torch.bmm(weights, values).flatten()
