"""Keys and values of the layers that an early exit leaves out, from the hidden state it left with.

"An Efficient Inference Framework for Early-exit Large Language Models", section 3.2. All skipped
layers read the same hidden state, so it is normalised once, their projections (with each layer's
norm gain folded into its rows) are one matrix product, their keys are rotated in one call, and what
remains is a write into each layer's paged cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from vllm.model_executor.layers.attention.attention import unified_kv_cache_update

from backends.early_exit.fill.joined import joined_fill
from backends.early_exit.fill.paged import paged_fill
from backends.early_exit.plugin.norm import rms_norm
from backends.early_exit.plugin.projection import StackedProjection


class Writer(Protocol):
    """Brings the product of a fill into the caches of the layers above one exit."""

    name: str

    def write(self, both: Tensor, positions: Tensor) -> None:
        """`both` (rows, 2 m S): of each of these m layers its keys, then its values, S = Hkv hd;
        `positions` (rows,) int64."""


class Filling(nn.Module):
    """Fills the caches of the layers above an exit.

    Built from the layers' weights before vLLM packs them, which on a CPU leaves none behind: one
    above the other, of each layer above the first of `exits` the rows of its keys, then those of
    its values.
    """

    def __init__(self, layers: Sequence[Any], exits: Sequence[int]) -> None:
        super().__init__()
        self._layers = list(layers)
        self._epsilon: float = layers[0].input_layernorm.variance_epsilon
        self._first = exits[0]
        self._rows: int = 2 * layers[0].self_attn.kv_size
        above = layers[self._first :]
        self.stack = StackedProjection(
            torch.cat([_folded(layer) for layer in above]),
            _biases(above),
            [self._start(exit_layer) for exit_layer in exits],
        )
        self._writers: dict[int, Writer] = {}
        self._place = 0

    def forward(self, exit_layer: int, stream: Tensor, positions: Tensor) -> None:
        """Write the keys and values of the layers above `exit_layer` at this step's positions.

        Args:
            exit_layer: the last layer that ran, counted from 1.
            stream: (rows, width), the residual stream after it, in the model's dtype.
            positions: (rows,) int64.
        """
        normed = rms_norm(stream, None, self._epsilon)
        both = self.stack(normed, self._start(exit_layer))
        self._writer(exit_layer).write(both, positions)

    def path(self, exit_layer: int) -> str:
        """Which writer the exit has: "joined" or "paged" kernels, or "layers" for vLLM's own
        operations layer by layer. Call when the caches are allocated."""
        return self._writer(exit_layer).name

    def _start(self, exit_layer: int) -> int:
        return (exit_layer - self._first) * self._rows

    def _writer(self, exit_layer: int) -> Writer:
        place = self._layers[-1].self_attn.attn.kv_cache.data_ptr()
        if place != self._place:  # vLLM has allocated its caches, perhaps anew
            self._writers, self._place = {}, place
        if exit_layer not in self._writers:
            above = self._layers[exit_layer:]
            self._writers[exit_layer] = joined_fill(above) or paged_fill(above) or _EachLayer(above)
        return self._writers[exit_layer]


class _EachLayer:
    """A write for each layer, by whatever attention backend vLLM uses."""

    name = "layers"

    def __init__(self, layers: Sequence[Any]) -> None:
        self._attentions = [layer.self_attn for layer in layers]

    def write(self, both: Tensor, positions: Tensor) -> None:
        """See `Writer`."""
        first, count = self._attentions[0], len(self._attentions)
        shape = (len(both), count, first.num_kv_heads, first.head_dim)
        keys, values = both.view(len(both), count, 2, -1).unbind(2)
        # vLLM rotates what stands in the query's place alone when there is no key
        keys, _ = first.rotary_emb(positions, keys.reshape(len(both), -1), None)
        keys, values = keys.view(shape), values.reshape(shape)
        for place, attention in enumerate(self._attentions):
            name = attention.attn.layer_name
            unified_kv_cache_update(keys[:, place], values[:, place], name)


def _folded(layer: Any) -> Tensor:
    """The rows of a layer's keys and values, its norm gain folded in."""
    attention, gain = layer.self_attn, layer.input_layernorm.weight.data
    weight: Tensor = attention.qkv_proj.weight.data[attention.q_size :]
    folded: Tensor = weight.float() * gain.float()
    return folded.to(weight.dtype)


def _biases(layers: Sequence[Any]) -> Tensor | None:
    """What the layers add to their keys and values; None in a model without."""
    if getattr(layers[0].self_attn.qkv_proj, "bias", None) is None:
        return None
    return torch.cat(
        [layer.self_attn.qkv_proj.bias.data[layer.self_attn.q_size :] for layer in layers]
    )
