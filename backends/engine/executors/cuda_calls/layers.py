"""The transformer layers on CUDA, at a fixed number of rows and on tensors that stand still."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from backends.engine.model.architecture import Architecture
from backends.engine.model.cache import KVCache
from backends.engine.model.forward import Rotary, head_product
from backends.engine.model.heads import ExitHead
from backends.engine.model.weights import LayerWeights, Weights
from backends.engine.sublayers.sets import NOTHING, Sublayers
from backends.kernels.attention import AttentionScratch, attention
from backends.kernels.exit_head import MAX_ROWS, HeadScratch
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
class CudaHead:
    """A matrix that turns a boundary's rows into tokens, and where it leaves what it finds."""

    matrix: Tensor
    token_ids: Tensor | None
    scratch: HeadScratch
    found: Tensor
    """(2, rows) int32: tokens, and the bits of their float32 confidences; for one copy."""
    margin: bool
    """See `ExitHead.margin`."""
    scales: Tensor | None
    """See `ExitHead.scales`."""

    @classmethod
    def of(cls, head: ExitHead, like: Tensor, rows: int) -> CudaHead:
        """For calls of `rows` rows, with the dtype and device of `like`."""
        place, scales = like.device, head.scales
        if scales is None or head.margin:
            matrix, scales = head.plain().to(place, like.dtype), None
        else:
            matrix, scales = head.matrix[:].to(place), scales.to(place).contiguous()
        matrix = matrix.detach().contiguous()
        ids = None if head.token_ids is None else head.token_ids.to(like.device).contiguous()
        found = torch.zeros(2, rows, dtype=torch.int32, device=like.device)
        scratch = HeadScratch.allocate(rows, len(matrix), like.device)
        return cls(matrix, ids, scratch, found, head.margin, scales)

    def logits(self, hidden: Tensor) -> Tensor:
        """(rows, V') float32 of (rows, width) states under the final norm."""
        if self.scales is None:
            return head_product(hidden, self.matrix)
        return (hidden.float() @ self.matrix.float().T) * self.scales


def find_margins(hidden: Tensor, head: CudaHead) -> None:
    """What the head finds in (rows, width) states under the final norm, with the best token's
    probability less the second's. The logits are written down for it."""
    logits = head_product(hidden, head.matrix)
    best, places = logits.topk(2)
    first, second = (best - torch.logsumexp(logits, -1, keepdim=True)).exp().unbind(1)
    tokens = places[:, 0] if head.token_ids is None else head.token_ids[places[:, 0]]
    head.found[0].copy_(tokens)
    head.found[1].view(torch.float32).copy_(first - second)


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
    onward = partial(norm, residual=held.residual, out=held.normed)
    ends = partial(norm, residual=target[0], residual_rows=target[1])
    kept = [
        (number, attends)
        for number in numbers
        for attends, others in ((True, left_out.attention), (False, left_out.mlp))
        if number not in others
    ]
    before = partial(onward, source[0], source_rows=source[1])
    for number, attends in kept:
        layer = weights.layers[number]
        before(gain=layer.input_norm if attends else layer.post_norm)
        if attends:
            _attend(number, layer, held, cells, weights.epsilon)
        else:
            torch.mm(held.normed, layer.gate_up.T, out=held.gate_up)
            silu_mul(held.gate_up, held.gated)
            torch.mm(held.gated, layer.down.T, out=held.branch)
        before = partial(onward, held.residual, add=held.branch)
    if kept:
        ends(held.residual, add=held.branch)
    else:
        ends(source[0], source_rows=source[1])


def _attend(
    number: int, layer: LayerWeights, held: Activations, cells: Cells, epsilon: float
) -> None:
    """`held.branch` = the attention block's output for `held.normed`."""
    where = cells.slots, cells.positions
    keys, values = cells.cache.keys[number], cells.cache.values[number]
    torch.mm(held.normed, layer.qkv.T, out=held.qkv)
    rope_cache(
        *(held.qkv, cells.rotary.cosines, cells.rotary.sines),
        *(*where, keys, values, held.query),
        bias=layer.qkv_bias,
        q_norm=layer.q_norm,
        k_norm=layer.k_norm,
        epsilon=epsilon,
    )
    attention(held.query, keys, values, *where, held.splits, held.attended, cells.reach)
    torch.mm(held.attended.flatten(1), layer.out.T, out=held.branch)


def rows_for(sequences: int) -> int:
    """Rows of every call for so many sequences at once, a power of two from 16 to 64. All methods
    get the same ones: on a row's kernels, which differ by the number, its rounding depends. On one
    H200 and an 8B model 16 rows take 1.05, 32 rows 1.07, 64 rows 1.17 of the time of 8."""
    return min(MAX_ROWS, max(FEWEST_ROWS, power_of_2(sequences)))
