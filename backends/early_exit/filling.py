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

from backends.early_exit.joined_fill import joined_fill
from backends.early_exit.paged_fill import paged_fill
from backends.early_exit.projection import Projection


class Writer(Protocol):
    """Brings the product of a fill into the caches of the layers above one exit."""

    name: str

    def write(self, both: Tensor, positions: Tensor) -> None:
        """`both` (rows, 2 m S): the keys of these m layers, then their values, S = Hkv hd;
        `positions` (rows,) int64."""


class Filling(nn.Module):
    """Fills the caches of the layers above an exit.

    Built from the layers' weights before vLLM packs them, which on a CPU leaves none behind. It
    holds a stacked projection for each of `exits`: the rows of all keys, then those of all values,
    of the layers above.
    """

    def __init__(self, layers: Sequence[Any], exits: Sequence[int]) -> None:
        super().__init__()
        self._layers = list(layers)
        rows, biases = [_folded(layer) for layer in layers], _biases(layers)
        self.stacks = nn.ModuleDict()
        for exit_layer in exits:
            keys, values = zip(*rows[exit_layer:], strict=True)
            bias = biases and torch.cat([b for kind in biases for b in kind[exit_layer:]])
            self.stacks[str(exit_layer)] = Projection(torch.cat([*keys, *values]), bias)
        self._writers: dict[int, Writer] = {}
        self._place = 0

    def forward(self, exit_layer: int, unit: Tensor, positions: Tensor) -> None:
        """Write the keys and values of the layers above `exit_layer` at this step's positions.

        Args:
            exit_layer: the last layer that ran, counted from 1.
            unit: (rows, width), the residual stream after it divided by its root mean square, in
                the model's dtype.
            positions: (rows,) int64.
        """
        both = self.stacks[str(exit_layer)](unit)
        self._writer(exit_layer).write(both, positions)

    def path(self, exit_layer: int) -> str:
        """Which writer the exit has: "joined" or "paged" kernels, or "layers" for vLLM's own
        operations layer by layer. Call when the caches are allocated."""
        return self._writer(exit_layer).name

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
        keys, values = both.chunk(2, dim=-1)
        # vLLM rotates what stands in the query's place alone when there is no key
        keys, _ = first.rotary_emb(positions, keys.contiguous(), None)
        shape = (-1, count, first.num_kv_heads, first.head_dim)
        keys, values = keys.view(shape), values.reshape(shape)
        for place, attention in enumerate(self._attentions):
            name = attention.attn.layer_name
            unified_kv_cache_update(keys[:, place], values[:, place], name)


def _folded(layer: Any) -> tuple[Tensor, Tensor]:
    """The rows of a layer's keys and those of its values, its norm gain folded in."""
    attention, gain = layer.self_attn, layer.input_layernorm.weight.data
    weight = attention.qkv_proj.weight.data[attention.q_size :]
    folded = (weight.float() * gain.float()).to(weight.dtype)
    keys, values = folded.split(attention.kv_size)
    return keys, values


def _biases(layers: Sequence[Any]) -> tuple[list[Tensor], list[Tensor]] | None:
    """What each layer adds to its keys, and to its values; None in a model without."""
    if getattr(layers[0].self_attn.qkv_proj, "bias", None) is None:
        return None
    attentions = [layer.self_attn for layer in layers]
    pairs = [a.qkv_proj.bias.data[a.q_size :].split(a.kv_size) for a in attentions]
    return [keys for keys, _ in pairs], [values for _, values in pairs]
