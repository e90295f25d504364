"""The transformer layers on CUDA, at a fixed number of rows and on tensors that stand still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from backends.engine.executors.base import Int32
from backends.engine.executors.torch_rows import fill_layers
from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.cache import KVCache
from backends.engine.model.forward import Rotary, prefill
from backends.engine.model.taps import Taps
from backends.engine.model.weights import LayerWeights, Weights
from backends.engine.sublayers.sets import NOTHING, Sublayers
from backends.kernels.attention import AttentionScratch, attention
from backends.kernels.exit_head import MAX_ROWS
from backends.kernels.rms_norm import rms_norm
from backends.kernels.rope_cache import rope_cache
from backends.kernels.silu_mul import silu_mul
from backends.kernels.triton_runtime import power_of_2

FEW_CALLS = 4
"""Calls of graphs that are taken to be quicker than the launches of a prompt's pass."""
FEWEST_ROWS = 16
"""A verification of 12 drafts is one call."""


@dataclass(frozen=True, slots=True)
class Activations:
    """What the layers hand one another; one set for all segments, since they run in turn."""

    residual: Tensor
    normed: Tensor
    qkv: Tensor
    query: Tensor
    attended: Tensor
    branch: Tensor
    gate_up: Tensor
    gated: Tensor
    splits: AttentionScratch

    @classmethod
    def allocate(cls, shape: Architecture, rows: int, max_len: int, like: Tensor) -> Activations:
        """For calls of `rows` rows at up to `max_len` positions, with the dtype and device of
        `like`."""
        heads = shape.heads, shape.head_dim
        return cls(
            residual=like.new_empty(rows, shape.width),
            normed=like.new_empty(rows, shape.width),
            qkv=like.new_empty(rows, shape.query_size + 2 * shape.kv_size),
            query=like.new_empty(rows, *heads),
            attended=like.new_empty(rows, *heads),
            branch=like.new_empty(rows, shape.width),
            gate_up=like.new_empty(rows, 2 * shape.feed_forward),
            gated=like.new_empty(rows, shape.feed_forward),
            splits=AttentionScratch.allocate(rows, *heads, max_len, like.device),
        )


@dataclass(frozen=True, slots=True)
class Cells:
    """Where the rows stand: their places in the cache, read on the device."""

    cache: KVCache
    rotary: Rotary
    slots: Tensor
    """[rows] int32"""
    positions: Tensor
    """[rows] int32"""
    reach: int | None = None
    """No position is beyond this many; None: the cache's."""
    taps: Taps | None = None
    """Where states after some layers are kept, at the rows' slots and positions."""

    def project(self, layer: LayerWeights, held: Activations) -> None:
        """`held.qkv` of the rows' `held.normed`."""
        torch.mm(held.normed, layer.qkv.T, out=held.qkv)

    def attend(self, number: int, layer: LayerWeights, held: Activations, epsilon: float) -> None:
        """`held.attended` = layer `number`'s attention of the rows that `held.qkv` has projected;
        their keys and values are written."""
        where = self.slots, self.positions
        keys, values = self.cache.keys[number], self.cache.values[number]
        turn(layer, held, epsilon, self.rotary, where, (keys, values))
        attention(held.query, keys, values, *where, held.splits, held.attended, self.reach)

    @classmethod
    def allocate(
        cls,
        shape: Architecture,
        slots: int,
        max_len: int,
        like: Tensor,
        where: tuple[Tensor, Tensor],
    ) -> Cells:
        """In an empty cache with the dtype and device of `like`; where: slots and positions."""
        cache = KVCache.allocate(shape, slots, max_len, like.dtype, like.device)
        return cls(cache, Rotary.build(shape, max_len, like.device), *where)

    def of(self, slot: int) -> tuple[Tensor, Tensor, Taps | None]:
        """Keys and values of one slot, (layers, kv_heads, max_len, head_dim) each, and what is kept
        of its states."""
        taps = None if self.taps is None else self.taps.of(slot)
        return self.cache.keys[:, slot], self.cache.values[:, slot], taps

    def read_alone(
        self, weights: Weights, shape: Architecture, slot: int, first: int, tokens: Int32
    ) -> Tensor:
        """Run the positions of one slot from `first` on by a pass of their own. (width,): the last
        one's state, float32."""
        ids = torch.tensor(tokens, dtype=torch.int64, device=self.slots.device)
        *cache, taps = self.of(slot)
        return prefill(weights, shape, ids, self.rotary, *cache, start=first, taps=taps)

    def keeping(self, layers: Sequence[int], like: Tensor) -> tuple[Cells, Tensor]:
        """The same, with states kept after so many `layers`, of the width, dtype and device of
        `like` (n, width); and these states. Raises `EngineError` for layers that there are not."""
        depth, slots, _, positions, _ = self.cache.keys.shape
        place = like.dtype, like.device
        Taps(tuple(layers), like).by_depth(depth)  # before so much is reserved
        taps = Taps.allocate(layers, slots, positions, like.shape[1], *place)
        return replace(self, taps=taps), taps.states

    def tap(self, layers: range, x: Tensor) -> None:
        """Keep the rows' states x, which are the same after each of so many `layers`."""
        for count in layers:
            if self.taps is not None and count in self.taps.layers:
                self.taps.put(count, (self.slots.long(), self.positions.long()), x)

    def taps_any(self, layers: range) -> bool:
        """Whether states after one of so many `layers` are kept."""
        return self.taps is not None and any(count in layers for count in self.taps.layers)


def run_layers(
    weights: Weights,
    numbers: range,
    held: Activations,
    source: tuple[Tensor, Tensor],
    target: tuple[Tensor, Tensor],
    cells: Cells,
    left_out: Sublayers = NOTHING,
) -> None:
    """Launch the layers `numbers`, from rows of a table to rows of another.

    Args:
        weights: the model.
        numbers: consecutive layers, at least one.
        held: what the layers hand one another; overwritten.
        source: a table [n, width] (the embedding, a boundary) and the row of it, int32, at which
            each of the call's rows begins.
        target: the table [m, width] and its rows that receive the residual stream.
        cells: where keys and values are written and read.
        left_out: sublayers that the rows pass unchanged.
    """
    norm = partial(rms_norm, rows=len(held.residual), epsilon=weights.epsilon)
    kept = [
        (number, attends)
        for number in numbers
        for attends, others in ((True, left_out.attention), (False, left_out.mlp))
        if number not in others
    ]
    reached = partial(norm, source[0], source_rows=source[1])
    # the segment before has kept what this one begins with
    told = numbers.start + (numbers.start > 0)
    for number, attends in kept:
        layer = weights.layers[number]
        gain = layer.input_norm if attends else layer.post_norm
        reached(residual=held.residual, gain=gain, out=held.normed)
        cells.tap(range(told, number + 1), held.residual)
        told = max(told, number + 1)
        if attends:
            cells.project(layer, held)
            cells.attend(number, layer, held, weights.epsilon)
            torch.mm(held.attended.flatten(1), layer.out.T, out=held.branch)
        else:
            torch.mm(held.normed, layer.gate_up.T, out=held.gate_up)
            silu_mul(held.gate_up, held.gated)
            torch.mm(held.gated, layer.down.T, out=held.branch)
        reached = partial(norm, held.residual, add=held.branch)
    if cells.taps_any(left := range(told, numbers.stop + 1)):
        reached(residual=held.residual)
        cells.tap(left, held.residual)
        reached = partial(norm, held.residual)
    reached(residual=target[0], residual_rows=target[1])


def fill_cells(
    weights: Weights,
    shape: Architecture,
    layers: range,
    x: Tensor,
    cells: Cells,
) -> None:
    """Launch what writes the K and V that each of `layers` computes of the rows' states x, (rows,
    width)."""
    where = cells.slots.long(), cells.positions.long()
    rotary = cells.rotary.at(where[1])
    fill_layers(weights, shape, layers, x, rotary, cells.cache, where)


def turn(
    layer: LayerWeights,
    held: Activations,
    epsilon: float,
    rotary: Rotary,
    where: tuple[Tensor, Tensor],
    written: tuple[Tensor, Tensor],
) -> None:
    """Turn the queries that `held.qkv` has projected into `held.query`, and write its keys and
    values.

    Args:
        layer: of which the biases and norms are.
        held: of the call.
        epsilon: of the norms.
        rotary: tables.
        where: slots and positions of the rows in the tables and in what is `written`.
        written: keys and values, [slots, kv_heads, positions, head_dim] each.
    """
    rope_cache(
        *(held.qkv, rotary.cosines, rotary.sines, *where, *written, held.query),
        bias=layer.qkv_bias,
        q_norm=layer.q_norm,
        k_norm=layer.k_norm,
        epsilon=epsilon,
    )


def check_sizes(slots: int, max_len: int, rows: int) -> None:
    """Raise `EngineError` for sizes that an executor on CUDA cannot have."""
    if slots < 1 or max_len < 1 or not 1 <= rows <= MAX_ROWS:
        raise EngineError(
            f"cuda executor: slots {slots}, max_len {max_len}, rows {rows}: expected positive "
            f"numbers, rows to {MAX_ROWS}"
        )


def rows_for(sequences: int) -> int:
    """Rows of every call for so many sequences at once, a power of two from 16 to 64. All methods
    get the same ones: on a row's kernels, which differ by the number, its rounding depends. On one
    H200 and an 8B model 16 rows take 1.05, 32 rows 1.07, 64 rows 1.17 of the time of 8."""
    return min(MAX_ROWS, max(FEWEST_ROWS, power_of_2(sequences)))
