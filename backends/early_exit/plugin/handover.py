"""What one segment hands to the next, at fixed addresses: for CUDA graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.config import CUDAGraphMode
from vllm.forward_context import get_forward_context


class Handover:
    """Two buffers, through which hidden states and residuals reach a segment.

    A graph reads its inputs where they lay when it was captured (vLLM's runner keeps token ids and
    positions, which the first segment reads, in one place). And vLLM lets go of the memory of
    a compiled unit's outputs while it captures, so that graphs of other units write there: outputs
    have to be copied before the next segment runs (as its Gemma3n does between two units).
    """

    def __init__(self, rows: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        self._hidden = torch.empty(rows, width, dtype=dtype, device=device)
        self._residual = torch.empty_like(self._hidden)

    def __call__(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """The (rows, width) inputs of the next segment; a step without graphs takes them as they
        are."""
        if get_forward_context().cudagraph_runtime_mode == CUDAGraphMode.NONE:
            return hidden, residual
        rows = len(hidden)
        return self._hidden[:rows].copy_(hidden), self._residual[:rows].copy_(residual)


def make_handover(vllm_config: Any) -> Handover | None:
    """For steps of up to as many rows as graphs are captured for; None where there are no graphs.
    On the device where the model is being built."""
    compilation = vllm_config.compilation_config
    if not compilation.cudagraph_mode.has_piecewise_cudagraphs():
        return None
    model = vllm_config.model_config
    return Handover(
        compilation.max_cudagraph_capture_size,
        model.get_hidden_size(),
        model.dtype,
        vllm_config.device_config.device,
    )
