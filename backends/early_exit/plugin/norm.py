"""RMSNorm of the hidden state at an exit, by vLLM's own kernel: outside compiled code its operation
is a row of small ones on a CPU, and on CUDA too once vLLM compiles."""

from __future__ import annotations

import torch
from torch import Tensor
from vllm.platforms import current_platform

current_platform.import_kernels()


def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    """(rows, width) of `x` divided by its root mean square, times `weight` (width,) if given."""
    out = torch.empty_like(x)
    torch.ops._C.rms_norm(out, x, weight, epsilon)
    return out
