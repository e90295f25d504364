"""Whether this machine's memory holds what is asked of it, before weights are made."""

from __future__ import annotations

from backends.checkpoints.shapes.folder import read_shape
from backends.checkpoints.shapes.making import GIB
from harness.core.errors import UserError, runs_elsewhere
from harness.core.nouns import Model
from harness.measure.machine import gpu, meters

ENGINE_ROOM_BYTES = 3 * GIB // 2
"""What an engine needs beside the weights: torch, vLLM, the KV of a few requests."""


def refuse_too_large(model: Model) -> None:
    """Raise `UserError` for a shape whose weights the machine cannot hold, before they are made."""
    parameters = read_shape(model).sizes.parameters
    weights = parameters * (4 if model.dtype == "float32" else 2)
    on_gpu = gpu.memory_total()
    room = (min(on_gpu) if on_gpu else meters.total_memory()) - ENGINE_ROOM_BYTES
    if weights <= room or runs_elsewhere():
        return
    kind = "GPU memory" if on_gpu else "memory"
    hint = "fewer 'layers' need less"
    if 2 * parameters <= room:
        hint = f"'dtype: {_half(bool(on_gpu))}' needs {2 * parameters / GIB:.1f} GiB, {hint}"
    raise UserError(
        f"model '{model.label()}': needs {weights / GIB:.1f} GiB for its weights in {model.dtype} "
        f"and about {ENGINE_ROOM_BYTES / GIB:.1f} GiB beside them, and this machine has "
        f"{(room + ENGINE_ROOM_BYTES) / GIB:.1f} GiB of {kind}; {hint}"
    )


def _half(on_gpu: bool) -> str:
    """The dtype of 16 bits that engines take on this machine."""
    return "float16" if on_gpu and gpu.compute_capability() < (8, 0) else "bfloat16"
