"""Rows of the torch executor's products: how they are cut, what they leave, and the attention of
one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from backends.engine.executors.base import StepRows
from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.cache import KVCache
from backends.engine.model.forward import Rotary, rms_norm, turned
from backends.engine.model.weights import Weights

FEWEST_ROWS = 4
"""Below, a CPU's float32 product takes another path, with other bits."""


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


def best_of(logits: Tensor) -> list[int]:
    """The lowest place of the highest of each row of (n, size) logits; -1 where that is NaN."""
    places = logits.argmax(dim=-1)
    highest = logits.gather(-1, places[:, None])[:, 0]
    found: list[int] = torch.where(highest.isnan(), -1, places).tolist()
    return found


def confidence_of(logits: Tensor, *, margin: bool) -> float:
    """The probability of the most probable token by float32 (vocabulary,) logits; with `margin` how
    far that is above the second's."""
    exponentials = torch.exp(logits - logits.max())
    best = 1 / exponentials.sum()
    return float(best * (1 - exponentials.topk(2).values[1]) if margin else best)


def check_room(slots: int, max_len: int, rows: int) -> None:
    """Raise `EngineError` for sizes of an executor that are none."""
    if slots < 1 or max_len < 1:
        raise EngineError(f"slots {slots}, max_len {max_len}: expected positive numbers")
    if rows < FEWEST_ROWS:
        raise EngineError(f"rows: {rows}: expected at least {FEWEST_ROWS}")


def parts_of(rows: StepRows, most: int, scratch: int, place: torch.device) -> Iterator[TorchRows]:
    """The rows in products of `most` rows each, padded with those of slot `scratch`."""
    for start in range(0, len(rows), most):
        stop = min(len(rows), start + most)
        table = np.zeros((3, most), np.int64)
        table[0] = scratch
        for target, column in zip(table, (rows.slots, rows.positions, rows.tokens), strict=True):
            target[: stop - start] = column[start:stop]
        real = list(zip(*table[:2, : stop - start].tolist(), strict=True))
        slots, positions, tokens = torch.from_numpy(table).to(place).unbind()
        yield TorchRows(slots, positions, tokens, real)


def fill_layers(
    weights: Weights,
    shape: Architecture,
    layers: range,
    x: Tensor,
    rotary: Rotary,
    cache: KVCache,
    where: tuple[Tensor, Tensor],
) -> None:
    """Write the K and V that each of `layers` computes of the same hidden states.

    Args:
        weights: the model.
        shape: its shape.
        layers: numbers, from 0.
        x: (rows, width).
        rotary: tables of the rows' positions.
        cache: written to.
        where: slots and positions, (rows,) each.
    """
    for number in layers:
        layer, size = weights.layers[number], shape.query_size
        normed = rms_norm(x.float(), layer.input_norm, shape.epsilon).to(layer.qkv.dtype)
        bias = None if layer.qkv_bias is None else layer.qkv_bias[size:]
        both = functional.linear(normed, layer.qkv[size:], bias)
        keys, values = both.view(len(x), 2, -1, shape.head_dim).unbind(1)
        slots, positions = where
        cache.keys[number][slots, :, positions] = turned(keys, layer.k_norm, shape, rotary)
        cache.values[number][slots, :, positions] = values
