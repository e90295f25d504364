"""The confidence measures of early exit on a CPU: one call into the C++ kernels each."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from backends.kernels.cpu import native

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


@functools.cache
def available() -> bool:
    """Whether the C++ kernels can be built and loaded here."""
    try:
        native.library()
    except native.NativeUnavailableError:
        return False
    return True


def top2_margin(logits: Tensor) -> Tensor:
    """(rows,) float32: the largest less the second largest of softmax(logits). `logits` (rows,
    vocabulary) in bf16, fp16 or fp32; NaN for a row that holds NaN or plus infinity."""
    logits = logits.contiguous()
    rows, size = logits.shape
    out = torch.empty(rows, dtype=torch.float32)
    native.library().margins(DTYPES[logits.dtype], logits.data_ptr(), rows, size, out.data_ptr())
    return out


def cosine_rows(a: Tensor, b: Tensor) -> Tensor:
    """(rows,) float32: the cosine of each row of `a` with that of `b`, both (rows, width) of one
    dtype, bf16, fp16 or fp32."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    a, b = a.contiguous(), b.contiguous()
    rows, size = a.shape
    out = torch.empty(rows, dtype=torch.float32)
    native.library().cosines(
        DTYPES[a.dtype], a.data_ptr(), b.data_ptr(), rows, size, out.data_ptr()
    )
    return out


def linear_probability(x: Tensor, weight: Tensor, bias: float) -> Tensor:
    """(rows,) float32: sigmoid(x @ weight + bias) of (rows, width) in bf16, fp16 or fp32 and a
    float32 vector (width,)."""
    x, weight = x.contiguous(), weight.contiguous()
    rows, size = x.shape
    assert weight.dtype == torch.float32
    assert weight.shape == (size,)
    out = torch.empty(rows, dtype=torch.float32)
    native.library().probabilities(
        DTYPES[x.dtype], x.data_ptr(), weight.data_ptr(), bias, rows, size, out.data_ptr()
    )
    return out
