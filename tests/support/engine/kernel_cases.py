"""Inputs and comparisons that the kernel tests share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ROUNDING = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-20}
"""Largest relative error of one rounding (of a short float32 sum, for float32)."""


def noise(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Standard normal numbers, the same on every device."""
    generator = torch.Generator().manual_seed(seed * 1000 + sum(shape))
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)


def integers(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """An output that shows what was not written: NaN, or -7 for integers."""
    value = float("nan") if dtype.is_floating_point else -7
    return torch.full(shape, value, dtype=dtype, device=DEVICE)


def assert_near(got: Tensor, expected: Tensor, dtype: torch.dtype, steps: float = 2.0) -> None:
    """Every element within `steps` roundings of `dtype` at the size of the whole; no NaN."""
    assert got.shape == expected.shape
    error = (got.double() - expected.double()).abs().max().item()
    size = expected.double().abs().max().item()
    assert error <= steps * ROUNDING[dtype] * max(size, 1e-6), f"error {error:.3g} of {size:.3g}"
