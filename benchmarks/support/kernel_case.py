"""One input set of a kernel's benchmark, and the models whose shapes they have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

BF16 = torch.bfloat16
DEVICE = "cuda"
Launch = Callable[[], object]


@dataclass(frozen=True, slots=True)
class KernelShape:
    """The sizes of a model, and how much of its caches is read."""

    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    layers: int
    rows: int = 8
    context: int = 2048


@dataclass(frozen=True, slots=True)
class KernelCase:
    """One input set: our launch, the library's, the bytes that must move, and a check."""

    name: str
    ours: Launch
    library: Launch | None
    moved: int
    check: Callable[[], float] | None = None
    """The largest error relative to the reference's largest number, after `ours` ran."""


SHAPES = {
    "llama-3.1-8b": KernelShape(4096, 14336, 32, 8, 128, 128256, 32),
    "300m": KernelShape(1024, 2816, 16, 4, 64, 32003, 16),
    "demo": KernelShape(256, 768, 4, 2, 64, 1280, 8),
}


def error(got: Tensor, expected: Tensor) -> float:
    """Relative to the largest number; NaN stays NaN."""
    size = expected.double().abs().max()
    return float((got.double() - expected.double()).abs().max() / size)


def normal(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(*shape, device=DEVICE, dtype=dtype)
