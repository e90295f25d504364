"""The layers between two exits as one unit of compilation.

vLLM compiles a whole model as one graph without branches, which cannot end early. Here each run of
layers between exits is a graph of its own, and plain Python between them decides whether the
next one runs. In eager mode a segment is a loop over its layers.

CUDA graphs are of the pieces between attentions, as vLLM cuts them, or (FULL_AND_PIECEWISE) of
whole segments in steps that only decode: a layer's attention between two pieces costs the host more
than the layer costs the device.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from vllm.compilation.backends import set_model_tag
from vllm.compilation.cuda_graph import CUDAGraphWrapper
from vllm.compilation.decorators import support_torch_compile
from vllm.config import CUDAGraphMode


def build_segments(model: Any, cuts: Sequence[int], vllm_config: Any, prefix: str) -> nn.ModuleList:
    """Segments of a `LlamaModel` (its modules shared, not copied), cut after the layers `cuts`.

    `cuts` ascend. The first segment is called with (positions, input_ids), the others with
    (positions, hidden, residual); each returns (hidden, residual), whose sum is the residual
    stream; the last one returns what the head reads in the place of hidden. Embedding and norm are
    inside, since they would not be compiled on their own.
    """
    layers = model.layers
    ends = [*cuts, len(layers)]
    segments = []
    for begin, end in zip([0, *ends], ends, strict=False):
        with set_model_tag(f"early_exit_{begin}_{end}"):
            segments.append(
                _segment_class(begin, end)(
                    vllm_config=vllm_config, prefix=f"{prefix}.segments.{begin}", model=model
                )
            )
    return nn.ModuleList(segments)


def graphs_of(segments: Iterable[nn.Module], vllm_config: Any) -> list[Any]:
    """What runs the segments, or a model without any: a CUDA graph of each in steps for which vLLM
    would take one of the whole model, where the configuration has such steps; else themselves."""
    if not vllm_config.compilation_config.cudagraph_mode.has_full_cudagraphs():
        return list(segments)
    return [CUDAGraphWrapper(one, vllm_config, CUDAGraphMode.FULL) for one in segments]


def _segment_class(begin: int, end: int) -> Any:
    """A module class of its own for each segment: compiled code is kept by class and code object,
    so that segments which shared them would overwrite one another's."""

    class Segment(nn.Module):
        def __init__(self, *, vllm_config: Any, prefix: str, model: Any) -> None:
            super().__init__()
            self.embed = model.embed_tokens if begin == 0 else None
            self.layers = nn.ModuleList(model.layers[begin:end])
            self.norm = model.norm if end == len(model.layers) else None

    def first(self: Any, positions: Tensor, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        hidden, residual = self.embed(input_ids), None
        for layer in self.layers:
            hidden, residual = layer(positions, hidden, residual)
        assert residual is not None
        return (hidden, residual) if self.norm is None else self.norm(hidden, residual)

    def later(
        self: Any, positions: Tensor, hidden: Tensor, residual: Tensor
    ) -> tuple[Tensor, Tensor]:
        for layer in self.layers:
            hidden, residual = layer(positions, hidden, residual)
        return (hidden, residual) if self.norm is None else self.norm(hidden, residual)

    source: Any = first if begin == 0 else later
    name = f"Segment_{begin}_{end}"
    forward = types.FunctionType(
        source.__code__.replace(), source.__globals__, "forward", None, source.__closure__
    )
    given = ("positions", "input_ids") if begin == 0 else ("positions", "hidden", "residual")
    forward.__annotations__ = dict.fromkeys(given, torch.Tensor)
    forward.__qualname__ = f"{name}.forward"
    Segment.forward = forward
    Segment.__name__ = Segment.__qualname__ = name
    return support_torch_compile(dynamic_arg_dims=dict.fromkeys(given, 0))(Segment)
