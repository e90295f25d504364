"""The kernels of early exit in vLLM, for `benchmarks/kernels.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from backends.kernels import exit_confidence, fill_cache
from benchmarks.support.kernel_case import (
    BF16,
    DEVICE,
    KernelCase,
    KernelShape,
    Launch,
    error,
    normal,
)

BLOCK_SIZE = 16


def early_exit_cases(shape: KernelShape) -> Iterator[Callable[[], KernelCase]]:
    """Makers of one input set each."""
    yield partial(fill_case, shape)
    yield partial(margin_case, shape)
    yield partial(cosine_case, shape)


def fill_case(shape: KernelShape) -> KernelCase:
    """An exit at half depth; the library's calls are vLLM's, two per layer, where it is there."""
    layers, size = shape.layers // 2, shape.kv_heads * shape.head_dim
    blocks = shape.rows * -(-shape.context // BLOCK_SIZE)
    sizes = (blocks, shape.kv_heads, BLOCK_SIZE, 2 * shape.head_dim)
    views = [
        torch.split(normal(*sizes).transpose(1, 2), shape.head_dim, dim=-1) for _ in range(layers)
    ]
    keys, values = (tuple(cache) for cache in zip(*views, strict=True))
    caches = fill_cache.prepare(keys, values)
    kv, angles = normal(shape.rows, 2 * layers * size), normal(shape.context, shape.head_dim)
    slots = torch.randperm(blocks * BLOCK_SIZE, device=DEVICE)[: shape.rows]
    positions = torch.randint(shape.context, (shape.rows,), device=DEVICE)
    arguments = (kv, positions, angles, slots, caches)

    def check() -> float:
        written = [cache[slots // BLOCK_SIZE, slots % BLOCK_SIZE] for cache in (*keys, *values)]
        fill_cache.fill_cache_reference(*arguments)
        expected = [cache[slots // BLOCK_SIZE, slots % BLOCK_SIZE] for cache in (*keys, *values)]
        return error(torch.stack(written), torch.stack(expected))

    return KernelCase(
        f"exit: fill {layers} layers",
        lambda: fill_cache.fill_cache(*arguments),
        vllm_fill(shape, *arguments) if find_spec("vllm") else None,
        2 * kv.nbytes,
        check,
    )


def vllm_fill(
    shape: KernelShape,
    kv: Tensor,
    positions: Tensor,
    angles: Tensor,
    slots: Tensor,
    caches: fill_cache.PagedCaches,
) -> Launch:
    """RoPE once over the keys of all layers, as `fill_cache` may, then one write per layer."""
    import vllm.platforms.cuda  # noqa: F401  (loads the library behind _custom_ops)
    from vllm import _custom_ops

    heads = (shape.rows, len(caches.keys), shape.kv_heads, shape.head_dim)
    rows, layers = heads[:2]
    keys, values = (part.reshape(rows, -1) for part in kv.view(rows, layers, 2, -1).unbind(2))
    one = torch.ones(1, device=DEVICE)

    def launch() -> None:
        _custom_ops.rotary_embedding(positions, keys, None, shape.head_dim, angles, True)
        for layer, (key_cache, value_cache) in enumerate(
            zip(caches.keys, caches.values, strict=True)
        ):
            key, value = keys.view(heads)[:, layer], values.view(heads)[:, layer]
            _custom_ops.reshape_and_cache_flash(
                key, value, key_cache, value_cache, slots, "auto", one, one
            )

    return launch


def margin_case(shape: KernelShape) -> KernelCase:
    logits = normal(shape.rows, shape.vocabulary) * 4
    margins = torch.empty(shape.rows, device=DEVICE)

    def library() -> Tensor:
        best = logits.float().softmax(-1).topk(2, -1).values
        return best[:, 0] - best[:, 1]

    return KernelCase(
        "exit: top-2 margin",
        lambda: exit_confidence.top2(logits, margins),
        library,
        logits.nbytes,
        lambda: error(margins, exit_confidence.top2_reference(logits)[0]),
    )


def cosine_case(shape: KernelShape) -> KernelCase:
    a, out = normal(shape.rows, shape.width), torch.empty(shape.rows, device=DEVICE)
    b = (a.float() + normal(shape.rows, shape.width, dtype=torch.float32)).to(BF16)
    return KernelCase(
        "exit: cosine",
        lambda: exit_confidence.cosine(a, b, out),
        lambda: torch.nn.functional.cosine_similarity(a.float(), b.float(), dim=-1),
        a.nbytes + b.nbytes,
        lambda: error(out, exit_confidence.cosine_reference(a, b)),
    )
