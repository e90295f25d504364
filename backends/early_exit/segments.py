"""The layers between two exits as one unit of compilation.

vLLM compiles a whole model as one graph without branches, which cannot end early. Here each run of
layers between exits is a graph of its own, and plain Python between them decides whether the
next one runs. In eager mode a segment is a loop over its layers.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from vllm.compilation.backends import set_model_tag
from vllm.compilation.decorators import support_torch_compile


def build_segments(
    layers: Sequence[nn.Module], cuts: Sequence[int], norm: nn.Module, vllm_config: Any, prefix: str
) -> nn.ModuleList:
    """Segments of `layers` (shared, not copied) cut behind the layers `cuts`, ascending.

    The first is called with (positions, hidden), the others with (positions, hidden, residual);
    each returns (hidden, residual), whose sum is the residual stream; the last one returns what the
    head reads in the place of hidden, since a norm on its own would not be compiled.
    """
    ends = [*cuts, len(layers)]
    segments = []
    for begin, end in zip([0, *ends], ends, strict=False):
        with set_model_tag(f"early_exit_{begin}_{end}"):
            segments.append(
                _segment_class(begin, end)(
                    vllm_config=vllm_config,
                    prefix=f"{prefix}.segments.{begin}",
                    layers=layers,
                    norm=norm if end == len(layers) else None,
                )
            )
    return nn.ModuleList(segments)


def _segment_class(begin: int, end: int) -> Any:
    """A module class of its own for each segment: compiled code is kept by class and code object,
    so that segments which shared them would overwrite one another's."""

    class Segment(nn.Module):
        def __init__(
            self, *, vllm_config: Any, prefix: str, layers: Sequence[nn.Module], norm: Any
        ) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layers[begin:end])
            self.norm = norm

    def first(self: Any, positions: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        residual = None
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
    forward.__annotations__ = dict.fromkeys(("positions", "hidden", "residual"), torch.Tensor)
    forward.__qualname__ = f"{name}.forward"
    Segment.forward = forward
    Segment.__name__ = Segment.__qualname__ = name
    dimensions = {"positions": 0, "hidden": 0} | ({} if begin == 0 else {"residual": 0})
    return support_torch_compile(dynamic_arg_dims=dimensions)(Segment)
