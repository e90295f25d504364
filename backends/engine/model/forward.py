"""Whole sequences through the layers, in plain torch: prompts, and hidden states for training.

The residual stream, norms, rotary angles and softmax are float32; matrix products take the model's
dtype. The same prompt gives the same bits every time on the same machine and number of threads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.attention import attend
from backends.engine.model.taps import Taps
from backends.engine.model.weights import LayerWeights, Weights

FEED_FORWARD_ROWS = 4096
"""Positions that go through a feed-forward block at a time."""
PROMPT_BLOCK = 16
"""What a prompt's length is rounded up to on a CPU in bfloat16, whose library compiles every
product for every number of rows that it meets, and keeps the last thousand (1.7 MB a length)."""
HEAD_ROWS = 8192
"""Rows of a head that are widened to float32 at a time."""
HALF_ROWS = 32
"""From here on, widening float16 weights is faster on a CPU than its own float16 products."""


@dataclass(frozen=True, slots=True)
class Rotary:
    """Cosines and sines of the rotary angles, each (positions, head_dim / 2) float32."""

    cosines: Tensor
    sines: Tensor

    @classmethod
    def build(
        cls, architecture: Architecture, positions: int, device: torch.device | str = "cpu"
    ) -> Rotary:
        """The tables of positions 0 to `positions` - 1."""
        frequencies = torch.tensor(architecture.inverse_frequencies, dtype=torch.float32)
        angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
        factor = architecture.rope_factor
        return cls((angles.cos() * factor).to(device), (angles.sin() * factor).to(device))

    def at(self, positions: Tensor | slice) -> Rotary:
        """The tables of some positions."""
        return Rotary(self.cosines[positions], self.sines[positions])

    def turn(self, heads: Tensor) -> Tensor:
        """Rotate float32 (..., positions, heads, head_dim), pairs half a head apart."""
        cosines, sines = self.cosines[..., None, :], self.sines[..., None, :]
        low, high = heads.chunk(2, dim=-1)
        return torch.cat((low * cosines - high * sines, high * cosines + low * sines), dim=-1)


@torch.no_grad()
def prefill(
    weights: Weights,
    architecture: Architecture,
    token_ids: Tensor,
    rotary: Rotary,
    keys_out: Tensor,
    values_out: Tensor,
    *,
    start: int = 0,
    taps: Taps | None = None,
    entered: Tensor | None = None,
    everywhere: bool = False,
) -> Tensor:
    """Run one prompt, or its next piece, through all layers and keep its keys and values.

    Of the last layer only the keys and values are computed at all positions, the rest at the last
    ones alone, unless it is asked for everywhere.

    Args:
        weights: the model.
        architecture: its shape.
        token_ids: int64 (n,), n >= 1, on any device.
        rotary: tables of at least start + n positions, on the weights' device.
        keys_out: (layers, kv_heads, >= start + n, head_dim); positions from `start` on are written,
            those before hold what earlier pieces left.
        values_out: the same.
        start: position of the first token.
        taps: of this sequence; the states of the positions are kept there.
        entered: float32 (n, width), the states in front of the first layer; None: the tokens'
            embeddings.
        everywhere: tell the states of all positions.

    Returns:
        float32 (width,): the last position's hidden state after the last layer, before the norm;
        (n, width) where it is asked for everywhere.
    """
    count = len(token_ids)
    narrow = weights.embedding.dtype == torch.bfloat16 and not weights.embedding.is_cuda
    block = PROMPT_BLOCK if narrow else 1
    padded = -(-count // block) * block
    places = torch.arange(padded, device=rotary.cosines.device).clamp_(max=count - 1)
    rotary = rotary.at(places + start)
    if entered is None:
        x = _embed(weights, functional.pad(token_ids, (0, padded - count))[None])
    else:
        x = functional.pad(entered, (0, 0, 0, padded - count))[None]
    for index, layer in enumerate(weights.layers):
        asked = padded if everywhere or index < architecture.layers - 1 else block
        queries, keys, values = _projected(layer, architecture, x, rotary, asked)
        kept = slice(start, start + count)
        keys_out[index, :, kept], values_out[index, :, kept] = (
            keys[0, :, :count],
            values[0, :, :count],
        )
        if start:
            keys = torch.cat((keys_out[index, :, :start][None], keys), dim=2)
            values = torch.cat((values_out[index, :, :start][None], values), dim=2)
        if taps is not None:
            taps.put(index, (kept,), x[0, :count])
            if index + 1 == architecture.layers and index + 1 in taps.layers:
                # by itself: what is asked for keeps the bits that it has without taps
                every = _projected(layer, architecture, x, rotary, padded)[0]
                after = _layer(layer, architecture, x, every, keys, values)
                taps.put(index + 1, (kept,), after[0, :count])
        x = _layer(layer, architecture, x[:, padded - asked :], queries, keys, values)
    return x[0, :count] if everywhere else x[0, count - 1 - padded]


@torch.no_grad()
def hidden_states(
    weights: Weights, architecture: Architecture, ids: Tensor, taps: Collection[int]
) -> dict[int, Tensor]:
    """Run whole sequences, of equal length, and keep the hidden states after some layers.

    Args:
        weights: the model.
        architecture: its shape.
        ids: int64 (batch, time); shorter sequences are padded after their end.
        taps: numbers of layers: 0 is the embedding, `architecture.layers` what goes into the final
            norm. No layer after the last tap is run.

    Returns:
        tap -> (batch, time, width), in the model's dtype.

    Raises:
        EngineError: for a tap that is no layer.
    """
    if not all(0 <= tap <= architecture.layers for tap in taps):
        raise EngineError(
            f"taps: {sorted(taps)}: expected numbers from 0 to {architecture.layers}, the layers"
        )
    dtype = weights.embedding.dtype
    x = _embed(weights, ids)
    rotary = Rotary.build(architecture, ids.shape[1], x.device)
    states = {0: x.to(dtype)} if 0 in taps else {}
    for index in range(max(taps, default=0)):
        layer = weights.layers[index]
        x = _layer(layer, architecture, x, *_projected(layer, architecture, x, rotary, x.shape[1]))
        if index + 1 in taps:
            states[index + 1] = x.to(dtype)
    return states


@torch.no_grad()
def final_logits(weights: Weights, hidden: Tensor) -> Tensor:
    """The final norm and the head.

    Args:
        weights: the model.
        hidden: (..., width) after the last layer, of any float dtype.

    Returns:
        float32 (..., vocabulary).
    """
    normed = rms_norm(hidden.float(), weights.norm, weights.epsilon).to(weights.head.dtype)
    return head_product(normed, weights.head)


def rms_norm(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    """Root-mean-square norm of the last dimension; all float32."""
    return functional.rms_norm(x, gain.shape, gain, epsilon)


def turned(
    heads: Tensor, gain: Tensor | None, architecture: Architecture, rotary: Rotary
) -> Tensor:
    """Queries or keys (..., heads, head_dim) rotated, in their dtype; before that under their own
    norm, where the model has one."""
    wide = heads.float()
    if gain is not None:
        wide = rms_norm(wide, gain, architecture.epsilon)
    return rotary.turn(wide).to(heads.dtype)


def head_product(x: Tensor, matrix: Tensor) -> Tensor:
    """``x @ matrix.T`` with a float32 result, which a product in bfloat16 would round to 8 bits.

    Args:
        x: (..., width) in the matrix' dtype.
        matrix: (rows, width).

    Returns:
        float32 (..., rows).
    """
    if matrix.dtype == torch.float32:
        return functional.linear(x, matrix)
    if matrix.is_cuda:
        flat = torch.mm(x.reshape(-1, x.shape[-1]), matrix.T, out_dtype=torch.float32)
        return flat.view(*x.shape[:-1], len(matrix))
    wide = x.float()
    parts = [functional.linear(wide, part.float()) for part in torch.split(matrix, HEAD_ROWS)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def _embed(weights: Weights, ids: Tensor) -> Tensor:
    return functional.embedding(ids.to(weights.embedding.device), weights.embedding).float()


def _projected(
    layer: LayerWeights, architecture: Architecture, x: Tensor, rotary: Rotary, asked: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries of the last `asked` positions of (batch, time, width), rotated keys and
    values of all: (batch, heads, positions, head_dim) each."""
    normed = rms_norm(x, layer.input_norm, architecture.epsilon).to(layer.qkv.dtype)
    time, size = x.shape[1], architecture.query_size
    if asked == time:
        joined = _product(normed, layer.qkv, layer.qkv_bias)
        queries, others = joined[..., :size], joined[..., size:]
    else:
        first, rest = (
            (None, None) if layer.qkv_bias is None else layer.qkv_bias.tensor_split([size])
        )
        queries = _product(normed[:, time - asked :], layer.qkv[:size], first)
        others = _product(normed, layer.qkv[size:], rest)
    keys, values = others.chunk(2, dim=-1)
    queries, keys, values = (
        part.reshape(*part.shape[:2], -1, architecture.head_dim) for part in (queries, keys, values)
    )
    queries = turned(queries, layer.q_norm, architecture, rotary.at(slice(time - asked, time)))
    keys = turned(keys, layer.k_norm, architecture, rotary)
    return queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)


def _layer(
    layer: LayerWeights,
    architecture: Architecture,
    x: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """The layer's output for the last positions of a sequence, whose input is x."""
    mixed = attend(queries, keys, values).transpose(1, 2).flatten(2)
    x = x + _product(mixed, layer.out)
    parts = torch.split(x, FEED_FORWARD_ROWS, dim=1)
    return torch.cat([part + _feed_forward(layer, architecture, part) for part in parts], dim=1)


def _feed_forward(layer: LayerWeights, architecture: Architecture, x: Tensor) -> Tensor:
    normed = rms_norm(x, layer.post_norm, architecture.epsilon).to(layer.gate_up.dtype)
    gate, up = _product(normed, layer.gate_up).chunk(2, dim=-1)
    return _product(functional.silu(gate) * up, layer.down)


def _product(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    slow = x.dtype == torch.float16 and not x.is_cuda and x.numel() >= HALF_ROWS * x.shape[-1]
    if slow:
        wide = functional.linear(x.float(), matrix.float(), None if bias is None else bias.float())
        return wide.to(x.dtype)
    return functional.linear(x, matrix, bias)
