"""The fill of all remaining layers by one write, where vLLM keeps its caches in one buffer.

On a CPU vLLM cuts all layers' caches out of one allocation, one behind the other. Seen as one cache
of as many times the blocks, a single write reaches them all: the slot of layer l is the request's
slot plus l times the slots of a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

from backends.kernels.cpu import native_checks
from backends.kernels.cpu.native_fill import arrange


class JoinedFill:
    """Writes the keys and values that the stacked product of a fill left, for given layers."""

    name = "joined"

    def __init__(self, layers: Sequence[Any]) -> None:
        first = layers[0].self_attn
        self._attention = first.attn
        cache = self._attention.kv_cache
        blocks, _, block_size, _ = cache.shape
        self._shape = (len(layers), first.num_kv_heads, first.head_dim)
        self._slots_per_layer = blocks * block_size
        self._cache = cache.as_strided((blocks * len(layers), *cache.shape[1:]), cache.stride())
        # the angles in the precision that vLLM's own layers rotate with
        angles = first.rotary_emb.cos_sin_cache.to(first.qkv_proj.params_dtype)
        self._cos_sin = angles.float().contiguous()

    def write(self, both: Tensor, positions: Tensor) -> None:
        """both (rows, 2 m S), of each layer its keys, then its values; positions (rows,)."""
        attention = self._attention
        slots = get_forward_context().slot_mapping[attention.layer_name]
        keys, values, places = arrange(
            both, positions, self._cos_sin, slots, self._shape, self._slots_per_layer
        )
        attention.impl.do_kv_cache_update(attention, keys, values, self._cache, places)


def joined_fill(layers: Sequence[Any]) -> JoinedFill | None:
    """None where it does not fit: caches elsewhere than at one distance in one buffer on the CPU, a
    cache dtype of its own, another rotary embedding than the plain one over whole heads, or no
    C++ kernels. Call when the caches are allocated."""
    attention = layers[0].self_attn
    rotary, caches = attention.rotary_emb, [layer.self_attn.attn.kv_cache for layer in layers]
    first = caches[0]
    fits = (
        first.device.type == "cpu"
        and first.dim() == 4
        and attention.attn.kv_cache_dtype == "auto"
        and type(rotary).forward_cpu is RotaryEmbedding.forward_cpu
        and rotary.is_neox_style
        and rotary.rotary_dim == attention.head_dim
        and native_checks.available()
    )
    return JoinedFill(layers) if fits and _in_a_row(caches) else None


def _in_a_row(caches: Sequence[Tensor]) -> bool:
    first = caches[0]
    buffer, distance = first.untyped_storage().data_ptr(), first.shape[0] * first.stride(0)
    return all(
        cache.untyped_storage().data_ptr() == buffer
        and (cache.shape, cache.stride(), cache.dtype) == (first.shape, first.stride(), first.dtype)
        and cache.storage_offset() == first.storage_offset() + place * distance
        for place, cache in enumerate(caches)
    )
