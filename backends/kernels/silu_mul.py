"""The gate of a SwiGLU feed-forward layer (Shazeer 2020): silu(gate) * up."""

from __future__ import annotations

import torch
from torch import Tensor

from backends.kernels.triton_runtime import check, jit, launch, tl

BLOCK = 1024


def silu_mul_reference(gate_up: Tensor) -> Tensor:
    """[rows, 2 f] (gate columns first) -> [rows, f], in float32, rounded once to the dtype."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (gate * torch.sigmoid(gate) * up).to(gate_up.dtype)


@jit
def silu_mul_kernel(
    gate_up: tl.tensor, out: tl.tensor, width: tl.tensor, block: tl.constexpr
) -> None:
    """One program per row and `block` columns."""
    row = tl.program_id(0)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inside = columns < width
    start = gate_up + row * 2 * width + columns
    gate = tl.load(start, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(start + width, mask=inside, other=0.0).to(tl.float32)
    y = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * width + columns, y.to(out.dtype.element_ty), mask=inside)


def silu_mul(gate_up: Tensor, out: Tensor) -> None:
    """out[r] = silu(gate_up[r, :f]) * gate_up[r, f:].

    gate_up [rows, 2 f], out [rows, f], same dtype (bf16, fp16, fp32). Raises EngineError for what
    does not fit.
    """
    rows, width = out.shape
    check("silu_mul", {"gate_up": (gate_up, (rows, 2 * width)), "out": (out, (rows, width))})
    grid = (rows, -(-width // BLOCK))
    launch(silu_mul_kernel, grid, gate_up, out, width, block=BLOCK, num_warps=4)
