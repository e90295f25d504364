"""Whether this machine's memory holds what is asked of it, before weights are made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from backends import settings
from backends.checkpoints.draft_heads.files import MEDUSA
from backends.checkpoints.draft_models import AUTO
from backends.checkpoints.shapes.drafts import drafting_shape
from backends.checkpoints.shapes.folder import outline, read_shape
from backends.checkpoints.shapes.heads import medusa_heads
from backends.checkpoints.shapes.making import GIB
from backends.vllm.arguments import CPU_KV_CACHE_GIB
from harness.core.errors import UserError, runs_elsewhere
from harness.core.nouns import Model
from harness.measure.machine import gpu, meters

ENGINE_ROOM_BYTES = 3 * GIB // 2
"""What an engine needs beside the weights: torch, vLLM, the KV of a few requests."""
KV = "kv_cache_gib"
QUANTIZATION = "quantization"
ELSEWHERE: Mapping[str, int] = {
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "cpu_offload_gb": 0,
    "offload_group_size": 0,
}
"""vLLM's arguments by which one GPU does not hold all the weights, where they are above this."""


class Part(NamedTuple):
    """What memory is needed for."""

    what: str
    less: str
    """What a user can make smaller."""
    parameters: int = 0
    fixed: int = 0
    """Bytes, whatever the dtype."""

    def size(self, width: int) -> int:
        """Bytes, at so many a parameter."""
        return width * self.parameters + self.fixed


def refuse_too_large(model: Model, engines: Iterable[tuple[str, Mapping[str, Any]]] = ()) -> None:
    """Raise `UserError` for a shape that the machine cannot hold, before its weights are made.

    Args:
        model: the shape, of a concrete dtype.
        engines: names and options of the backends that run it, one at a time: one may ask for a KV
            cache of a size, or have a draft model beside it. Not counted is one of which no device
            holds the weights whole and in the model's dtype.
    """
    if runs_elsewhere():
        return
    on_gpu = gpu.memory_total()
    asked = list(engines)
    whole = [engine for engine in asked if not _holds_less(*engine, on_gpu=bool(on_gpu))]
    if asked and not whole:
        return
    has = min(on_gpu) if on_gpu else meters.total_memory()
    room = has - ENGINE_ROOM_BYTES
    weights = Part("its weights", "fewer 'layers'", parameters=read_shape(model).sizes.parameters)
    beside = [[], *(_beside(model, *engine) for engine in whole)]

    def needs(width: int) -> list[tuple[Part, int]]:
        """Bytes at so many a parameter, of the engine that needs most."""
        every = [[(part, part.size(width)) for part in (*parts, weights)] for parts in beside]
        return max(every, key=_total)

    found, half = needs(4 if model.dtype == "float32" else 2), needs(2)
    if (total := _total(found)) <= room:
        return
    # one alone helps where all the others fit
    one = [part.less for part, size in found if total - size < room]
    hint = " or ".join(one) or " and ".join(part.less for part, _ in found)
    hint += " need less" if hint.endswith(("layers'", "drafts'")) else " needs less"
    if _total(half) <= room:
        hint = f"'dtype: {_half(bool(on_gpu))}' needs {_total(half) / GIB:.1f} GiB, {hint}"
    *others, own = (f"{size / GIB:.1f} GiB for {part.what}" for part, size in found)
    raise UserError(
        f"model '{model.label()}': needs {', '.join([f'{own} in {model.dtype}', *others])} and "
        f"about {ENGINE_ROOM_BYTES / GIB:.1f} GiB beside them, and this machine has "
        f"{has / GIB:.1f} GiB of {'GPU memory' if on_gpu else 'memory'}; {hint}"
    )


def _total(parts: Iterable[tuple[Part, int]]) -> int:
    return sum(size for _, size in parts)


def _holds_less(backend: str, options: Mapping[str, Any], *, on_gpu: bool) -> bool:
    """Whether no device has the whole weights in the model's dtype; a CPU's memory has those of
    every rank, and what is offloaded."""
    engine = settings(backend, options).get("engine") or {}
    if engine.get(QUANTIZATION):
        return True
    given = [(engine.get(name), usual) for name, usual in ELSEWHERE.items() if on_gpu]
    return any(isinstance(size, int | float) and size > usual for size, usual in given)


def _beside(model: Model, backend: str, options: Mapping[str, Any]) -> list[Part]:
    """What an engine holds beside the model's weights. A wrong option is told where options are
    checked."""
    chosen, found = settings(backend, options), list[Part]()
    gib = chosen.get(KV)
    if isinstance(gib, int | float):
        # on a CPU the KV of a few requests is in the engine's room
        counted = 0 if gpu.memory_total() else CPU_KV_CACHE_GIB
        what = f"KV{f' beyond {counted}' * bool(counted)} (backend '{backend}': {KV})"
        if gib > counted:
            found.append(Part(what, f"a smaller '{KV}'", fixed=round((gib - counted) * GIB)))
    if chosen.get("method") == "draft_model" and "draft" in chosen:
        with contextlib.suppress(UserError), outline(model) as directory:
            made = drafting_shape(backend, directory, chosen)
            if made is not None:
                what = f"the draft model {made.label} (backend '{backend}')"
                sizes = read_shape(made.model, made.vocabulary).sizes
                found.append(Part(what, "a smaller 'draft'", parameters=sizes.parameters))
    if chosen.get("method") == MEDUSA and chosen["draft"] == AUTO:
        with contextlib.suppress(UserError), outline(model) as directory:
            heads = medusa_heads(backend, directory, chosen["drafts"])
            what = f"the heads of {MEDUSA} (backend '{backend}')"
            count = sum(tensor.count for tensor in heads.tensors)
            found.append(Part(what, "fewer 'drafts'", parameters=count))
    return found


def _half(on_gpu: bool) -> str:
    """The dtype of 16 bits that engines take on this machine."""
    return "float16" if on_gpu and gpu.compute_capability() < (8, 0) else "bfloat16"
