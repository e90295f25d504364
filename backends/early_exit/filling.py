"""Keys and values of the layers that an early exit leaves out, from the hidden state it left with.

"An Efficient Inference Framework for Early-exit Large Language Models", section 3.2. All skipped
layers read the same hidden state, so it is normalised once, their projections (with each layer's
norm gain folded into its rows) are one matrix product, their keys are rotated in one call, and what
remains is one write into each layer's paged cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention.attention import unified_kv_cache_update
from vllm.platforms import current_platform

from backends.early_exit.norm import rms_norm
from backends.early_exit.paged_fill import PagedFill, paged_fill
from backends.early_exit.projection import Projection


class Filling(nn.Module):
    """Fills the caches of the layers above an exit.

    Built from the layers' weights before vLLM packs them, which on a CPU leaves none behind. It
    holds a stacked projection for each of `exits`: the rows of all keys, then those of all values,
    of the layers above.
    """

    def __init__(self, layers: Sequence[Any], exits: Sequence[int]) -> None:
        super().__init__()
        self._layers = list(layers)
        self._first = layers[0].self_attn
        self._epsilon: float = layers[0].input_layernorm.variance_epsilon
        rows = [_folded(layer) for layer in layers]
        self.stacks = nn.ModuleDict()
        for exit_layer in exits:
            above = rows[exit_layer:]
            weight = torch.cat([row.keys for row in above] + [row.values for row in above])
            biases = [row.key_bias for row in above] + [row.value_bias for row in above]
            bias = None if biases[0] is None else torch.cat([b for b in biases if b is not None])
            self.stacks[str(exit_layer)] = Projection(weight, bias)
        self._joined: dict[int, _Joined | None] = {}
        self._paged: PagedFill | Literal[False] | None = None
        """None until the caches are there; False where the kernel does not fit."""

    def forward(self, exit_layer: int, stream: Tensor, positions: Tensor) -> None:
        """Write the keys and values of the layers above `exit_layer` at this step's positions.

        Args:
            exit_layer: the last layer that ran, counted from 1.
            stream: (rows, width), the residual stream after it, in the model's dtype.
            positions: (rows,) int64.
        """
        attention, count = self._first, len(self._layers) - exit_layer
        size = attention.kv_size
        normed = rms_norm(stream, None, self._epsilon)
        both = self.stacks[str(exit_layer)](normed)
        if self._paged is None:
            self._paged = paged_fill(self._layers) or False
        if self._paged:
            self._paged.write(both, positions)
            return
        keys, values = both.split([count * size, count * size], dim=-1)
        # vLLM rotates what stands in the query's place alone when there is no key
        keys, _ = attention.rotary_emb(positions, keys.contiguous(), None)
        shape = (-1, count, attention.num_kv_heads, attention.head_dim)
        self._write(exit_layer, keys.view(shape), values.view(shape))

    def _write(self, exit_layer: int, keys: Tensor, values: Tensor) -> None:
        if exit_layer not in self._joined:
            self._joined[exit_layer] = _joined(self._layers[exit_layer:])
        joined = self._joined[exit_layer]
        if joined is not None and joined.write(keys, values):
            return
        for place, layer in enumerate(self._layers[exit_layer:]):
            name = layer.self_attn.attn.layer_name
            unified_kv_cache_update(keys[:, place], values[:, place], name)


class _Rows:
    """The rows of one layer's keys and values in its qkv projection, its norm gain folded in."""

    def __init__(self, layer: Any) -> None:
        attention, gain = layer.self_attn, layer.input_layernorm.weight.data
        projection = attention.qkv_proj
        weight = projection.weight.data[attention.q_size :]
        folded = (weight.float() * gain.float()).to(weight.dtype)
        self.keys, self.values = folded.split(attention.kv_size)
        self.key_bias: Tensor | None = None
        self.value_bias: Tensor | None = None
        if getattr(projection, "bias", None) is not None:
            bias = projection.bias.data[attention.q_size :]
            self.key_bias, self.value_bias = bias.split(attention.kv_size)


def _folded(layer: Any) -> _Rows:
    return _Rows(layer)


class _Joined:
    """The caches of several layers seen as one cache of as many times the blocks.

    On a CPU vLLM cuts all layers' caches out of one buffer, so that one write can reach them all:
    the slot of layer l is the request's slot plus l times the slots of a layer.
    """

    def __init__(self, attention: Any, cache: Tensor, layers: int) -> None:
        self._attention, self._cache = attention, cache
        blocks, _, block_size, _ = attention.kv_cache.shape
        self._origin = attention.kv_cache.data_ptr()
        self._offsets = torch.arange(layers) * (blocks * block_size)

    def write(self, keys: Tensor, values: Tensor) -> bool:
        """Write (rows, layers, kv_heads, head_dim) keys and values. False when vLLM has moved the
        caches since."""
        attention = self._attention
        if attention.kv_cache.data_ptr() != self._origin:
            return False
        slots = get_forward_context().slot_mapping[attention.layer_name]
        places = (slots[: len(keys), None] + self._offsets).reshape(-1)
        keys, values = keys.flatten(0, 1), values.flatten(0, 1)
        attention.impl.do_kv_cache_update(attention, keys, values, self._cache, places)
        return True


def _joined(layers: Sequence[Any]) -> _Joined | None:
    """None where the caches do not lie at one distance in one buffer, in plain floating point."""
    modules = [layer.self_attn.attn for layer in layers]
    caches = [module.kv_cache for module in modules]
    first = caches[0]
    if not current_platform.is_cpu() or modules[0].kv_cache_dtype != "auto" or first.dim() != 4:
        return None
    whole = first.untyped_storage().data_ptr()
    distance = first.shape[0] * first.stride(0)
    for place, cache in enumerate(caches):
        same = cache.untyped_storage().data_ptr() == whole and cache.stride() == first.stride()
        if not same or cache.storage_offset() != first.storage_offset() + place * distance:
            return None
    shape = (first.shape[0] * len(caches), *first.shape[1:])
    return _Joined(modules[0], first.as_strided(shape, first.stride()), len(caches))
