"""RMSNorm of the hidden state at an exit, by vLLM's compiled kernel also on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor
from vllm import ir
from vllm.platforms import current_platform

current_platform.import_kernels()


def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    """(rows, width) of `x` divided by its root mean square, times `weight` (width,) if given."""
    if x.device.type == "cpu":
        out = torch.empty_like(x)
        torch.ops._C.rms_norm(out, x, weight, epsilon)
        return out
    normed: Tensor = ir.ops.rms_norm(x, weight, epsilon)
    return normed
