"""RMSNorm (Zhang and Sennrich 2019) with what stands around it in a decoder: the rows may be
gathered from a table (an embedding, a boundary buffer), a branch's output may be added to the
residual stream, and the new residual may be scattered into a table."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.kernels.triton_runtime import check, jit, launch, power_of_2, tl


def rms_norm_reference(
    source: Tensor,
    gain: Tensor,
    epsilon: float,
    *,
    source_rows: Tensor | None = None,
    add: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``(residual, normed)``: residual = source[source_rows] + add, rounded to the source's dtype;
    normed = residual / rms(residual) * gain, computed in float32 and rounded once.

    Shapes: source [n, d], gain [d] float32, source_rows [rows] int, add [rows, d].
    """
    residual = source if source_rows is None else source[source_rows.long()]
    if add is not None:
        residual = (residual.float() + add.float()).to(source.dtype)
    wide = residual.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return residual, (wide * scale * gain).to(source.dtype)


@jit
def rms_norm_kernel(
    source: tl.tensor,
    source_rows: tl.tensor,
    add: tl.tensor,
    residual: tl.tensor,
    residual_rows: tl.tensor,
    gain: tl.tensor,
    out: tl.tensor,
    width: tl.tensor,
    epsilon: tl.tensor,
    block: tl.constexpr,
) -> None:
    """One program per row; pointers as the arguments of `rms_norm`, None where left out."""
    row = tl.program_id(0)
    columns = tl.arange(0, block)
    inside = columns < width
    start = row.to(tl.int64)
    if source_rows is not None:
        start = tl.load(source_rows + row).to(tl.int64)
    x = tl.load(source + start * width + columns, mask=inside, other=0.0).to(tl.float32)
    if add is not None:
        x += tl.load(add + row * width + columns, mask=inside, other=0.0).to(tl.float32)
        x = x.to(source.dtype.element_ty).to(tl.float32)
    if residual is not None:
        target = row.to(tl.int64)
        if residual_rows is not None:
            target = tl.load(residual_rows + row).to(tl.int64)
        place = residual + target * width + columns
        tl.store(place, x.to(residual.dtype.element_ty), mask=inside)
    if out is not None:
        scale = tl.rsqrt(tl.sum(x * x, 0) / width + epsilon)
        y = x * scale * tl.load(gain + columns, mask=inside, other=0.0)
        tl.store(out + row * width + columns, y.to(out.dtype.element_ty), mask=inside)


def rms_norm(
    source: Tensor,
    *,
    rows: int,
    gain: Tensor | None = None,
    epsilon: float = 0.0,
    out: Tensor | None = None,
    source_rows: Tensor | None = None,
    add: Tensor | None = None,
    residual: Tensor | None = None,
    residual_rows: Tensor | None = None,
) -> None:
    """Row r, 0 <= r < rows: x = source[source_rows[r]] + add[r]; residual[residual_rows[r]] = x;
    out[r] = rms_norm(x) * gain. What is None is left out (rows default to r itself).

    source [n, d], add and out [rows, d], residual [m, d], all of one dtype (bf16, fp16, fp32);
    gain [d] float32; source_rows and residual_rows [rows] int32. residual may be source itself:
    a row is read whole before it is written. Raises EngineError for what does not fit.
    """
    width = source.shape[-1]
    count = source.shape[0] if source_rows is not None else rows
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {"source": (source, (count, width))}
    places = {"source_rows": source_rows, "residual_rows": residual_rows}
    shapes |= {name: (tensor, (rows,)) for name, tensor in places.items() if tensor is not None}
    given = {"add": add, "out": out}
    shapes |= {
        name: (tensor, (rows, width)) for name, tensor in given.items() if tensor is not None
    }
    if residual is not None:
        count = residual.shape[0] if residual_rows is not None else rows
        shapes["residual"] = (residual, (count, width))
    if out is not None:
        if gain is None:
            raise EngineError("kernel rms_norm: out was given without gain")
        shapes["gain"] = (gain, (width,))
    check("rms_norm", shapes)
    block = power_of_2(width)
    arguments = (source, source_rows, add, residual, residual_rows, gain, out, width, epsilon)
    launch(
        rms_norm_kernel, (rows,), *arguments, block=block, num_warps=min(16, max(1, block // 256))
    )
