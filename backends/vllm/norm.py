"""vLLM's compiled RMSNorm on a CPU, where vLLM itself only uses it on a GPU.

In eager mode a CPU vLLM computes the norm as half a dozen operations of torch, while the compiled
kernel lies in its library. Registered as one more implementation of vLLM's own operations, both the
reference and what is compared with it can have it.
"""

from __future__ import annotations

import torch
from torch import Tensor

PROVIDER = "decodebench"
PRIORITY = {"rms_norm": [PROVIDER, "native"], "fused_add_rms_norm": [PROVIDER, "native"]}
"""For vLLM's engine argument `ir_op_priority`."""


def register() -> None:
    """Offer the kernels to vLLM, once in a process."""
    from vllm import ir

    if PROVIDER in ir.ops.rms_norm.impls:
        return
    ir.ops.rms_norm.register_impl(PROVIDER, supports_args=_fits, supported=True)(_rms_norm)
    ir.ops.fused_add_rms_norm.register_impl(
        PROVIDER, supports_args=_fits_both, supported=True, inplace=True
    )(_fused_add_rms_norm)


def _fits(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> bool:
    return (
        variance_size is None
        and weight is not None
        and weight.dtype == x.dtype
        and x.is_contiguous()
    )


def _fits_both(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> bool:
    return _fits(x, weight, epsilon, variance_size) and x_residual.is_contiguous()


def _rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> Tensor:
    out = torch.empty_like(x)
    torch.ops._C.rms_norm(out, x, weight, epsilon)
    return out


def _fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    torch.ops._C.fused_add_rms_norm(x, x_residual, weight, epsilon)
    return x, x_residual
