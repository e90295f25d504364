"""A matrix product as vLLM's own layers compute it, for weights made after loading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from vllm.platforms import current_platform


class Projection(nn.Module):
    """`x @ weight.T + bias`; on a CPU with the weight packed for the kernel of vLLM's layers."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self._packed = current_platform.is_cpu()
        if self._packed:
            from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

            dispatch_cpu_unquantized_gemm(self, remove_weight=True)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) to (rows, outputs), in the weight's dtype."""
        if self._packed:
            product: Any = self.cpu_linear
            out: Tensor = product(x, self.weight, self.bias)
            return out
        return torch.nn.functional.linear(x, self.weight, self.bias)


class StackedProjection(nn.Module):
    """Products with the last rows of one weight, from any of several `starts` on.

    On a CPU a packed weight cannot be cut, so that each start has a copy of its rows.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, starts: Sequence[int]) -> None:
        super().__init__()
        self._packed = current_platform.is_cpu()
        if self._packed:
            copies = {str(s): Projection(weight[s:], _from(bias, s)) for s in starts}
            self.copies = nn.ModuleDict(copies)
        else:
            self.weight = nn.Parameter(weight, requires_grad=False)
            self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor, start: int) -> Tensor:
        """(rows, width) to (rows, outputs - start), in the weight's dtype."""
        if self._packed:
            out: Tensor = self.copies[str(start)](x)
            return out
        return torch.nn.functional.linear(x, self.weight[start:], _from(self.bias, start))


def _from(bias: Tensor | None, start: int) -> Tensor | None:
    return None if bias is None else bias[start:]
