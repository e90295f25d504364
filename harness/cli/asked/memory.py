"""Whether this machine's memory holds what is asked of it, before weights are made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from backends import settings
from backends.checkpoints.shapes.drafts import drafting_shape
from backends.checkpoints.shapes.folder import outline, read_shape
from backends.checkpoints.shapes.making import GIB
from backends.vllm.arguments import CPU_KV_CACHE_GIB
from harness.core.errors import UserError, runs_elsewhere
from harness.core.nouns import Model
from harness.measure.machine import gpu, meters

ENGINE_ROOM_BYTES = 3 * GIB // 2
"""What an engine needs beside the weights: torch, vLLM, the KV of a few requests."""
KV = "kv_cache_gib"
ELSEWHERE = ("tensor_parallel_size", "pipeline_parallel_size", "cpu_offload_gb", "quantization")
"""vLLM's arguments by which one device does not hold all the weights, or holds smaller ones."""


def refuse_too_large(model: Model, engines: Iterable[tuple[str, Mapping[str, Any]]] = ()) -> None:
    """Raise `UserError` for a shape that the machine cannot hold, before its weights are made.

    Args:
        model: the shape, of a concrete dtype.
        engines: names and options of the backends that run it, one at a time: one may ask for a KV
            cache of a size, or have a draft model beside it.
    """
    if runs_elsewhere():
        return
    on_gpu = gpu.memory_total()
    has = min(on_gpu) if on_gpu else meters.total_memory()
    room = has - ENGINE_ROOM_BYTES
    weights = read_shape(model).sizes.parameters
    beside = [({}, {}), *(_beside(model, *engine) for engine in engines)]

    def needs(number: int) -> dict[str, int]:
        """Bytes by what they are for, at so many a parameter, with the engine that needs most."""
        every = (
            {what: number * some for what, some in drafts.items()} | cache
            for drafts, cache in beside
        )
        most = max(every, key=lambda parts: sum(parts.values()))
        return {"its weights": number * weights} | most

    found, half = needs(4 if model.dtype == "float32" else 2), needs(2)
    if sum(found.values()) <= room:
        return
    own, *others = (f"{size / GIB:.1f} GiB for {what}" for what, size in found.items())
    hint = "fewer 'layers' need less"
    if found["its weights"] <= room:
        hint = f"a smaller '{KV}' or {hint}" if any(KV in what for what in found) else hint
    if sum(half.values()) <= room:
        dtype = _half(bool(on_gpu))
        hint = f"'dtype: {dtype}' needs {sum(half.values()) / GIB:.1f} GiB, {hint}"
    raise UserError(
        f"model '{model.label()}': needs {', '.join([f'{own} in {model.dtype}', *others])} and "
        f"about {ENGINE_ROOM_BYTES / GIB:.1f} GiB beside them, and this machine has "
        f"{has / GIB:.1f} GiB of {'GPU memory' if on_gpu else 'memory'}; {hint}"
    )


def _beside(
    model: Model, backend: str, options: Mapping[str, Any]
) -> tuple[dict[str, int], dict[str, int]]:
    """What an engine holds beside the model's weights: parameters of a draft model, and bytes of a
    KV cache that was asked for. A wrong option is told where options are checked."""
    chosen, drafts, cache = settings(backend, options), dict[str, int](), dict[str, int]()
    gib, engine = chosen.get(KV), chosen.get("engine") or {}
    if isinstance(gib, int | float) and not any(engine.get(name) for name in ELSEWHERE):
        # on a CPU the KV of a few requests is in the engine's room
        counted = 0 if gpu.memory_total() else CPU_KV_CACHE_GIB
        beyond = f" beyond {counted}" * bool(counted)
        if gib > counted:
            cache[f"KV{beyond} (backend '{backend}': {KV})"] = round((gib - counted) * GIB)
    if chosen.get("method") == "draft_model" and "draft" in chosen:
        with contextlib.suppress(UserError), outline(model) as directory:
            made = drafting_shape(backend, directory, chosen)
            if made is not None:
                sizes = read_shape(made.model, made.vocabulary).sizes
                drafts[f"the draft model {made.label} (backend '{backend}')"] = sizes.parameters
    return drafts, cache


def _half(on_gpu: bool) -> str:
    """The dtype of 16 bits that engines take on this machine."""
    return "float16" if on_gpu and gpu.compute_capability() < (8, 0) else "bfloat16"
