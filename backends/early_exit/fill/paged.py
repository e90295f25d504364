"""The fill of all remaining layers by one kernel, where vLLM keeps its caches on a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding

from backends.kernels.fill_cache import PagedCaches, fill_cache, prepare

LAYOUTS = ("FLASH_ATTN", "TRITON_ATTN")
"""vLLM's attention backends whose caches are [blocks, Hkv, block_size, 2 hd], keys then values."""


class PagedFill:
    """Rotates and writes the keys and values that the stacked product of a fill left."""

    name = "paged"

    def __init__(self, layers: Sequence[Any]) -> None:
        self._attentions = [layer.self_attn.attn for layer in layers]
        self._rotary = layers[0].self_attn.rotary_emb
        self._caches: PagedCaches | None = None
        self._place = 0

    def write(self, kv: Tensor, positions: Tensor) -> None:
        """kv (rows, 2 m S), of each of the last m layers its keys, then its values;
        positions (rows,)."""
        last = self._attentions[-1]
        place = last.kv_cache.data_ptr()
        if self._caches is None or place != self._place:
            self._caches, self._place = self._prepare(), place
        slots = get_forward_context().slot_mapping[last.layer_name]
        fill_cache(kv, positions, self._rotary.cos_sin_cache, slots[: len(kv)], self._caches)

    def _prepare(self) -> PagedCaches:
        halves = [
            torch.split(a.kv_cache.transpose(1, 2), a.head_size, dim=-1) for a in self._attentions
        ]
        return prepare([keys for keys, _ in halves], [values for _, values in halves])


def paged_fill(layers: Sequence[Any]) -> PagedFill | None:
    """None where the kernel does not fit: another device, attention backend, cache dtype, or rotary
    embedding than the plain one over whole heads. Call when the caches are allocated."""
    attention = layers[0].self_attn
    attn, rotary = attention.attn, attention.rotary_emb
    cache = attn.kv_cache
    fits = (
        cache.device.type == "cuda"
        and attn.attn_backend.get_name() in LAYOUTS
        and cache.dtype == attention.qkv_proj.weight.dtype
        and cache.dim() == 4
        and (cache.shape[1], cache.shape[3]) == (attn.num_kv_heads, 2 * attn.head_size)
        and type(rotary).forward_cuda is RotaryEmbedding.forward_cuda
        and rotary.is_neox_style
        and rotary.rotary_dim == attn.head_size
    )
    return PagedFill(layers) if fits else None
