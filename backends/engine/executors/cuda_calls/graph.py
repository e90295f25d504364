"""Work captured once as a CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from backends.engine.model.architecture import EngineError


@torch.no_grad()
def capture(runs: Sequence[Callable[[], None]], device: torch.device) -> list[Callable[[], None]]:
    """Each run as the replay of its graph. The graphs share their memory: one at a time may run.

    A run only launches kernels on tensors that it holds; it is executed once before its capture,
    which compiles the kernels and gives cuBLAS its workspace, neither of which may happen inside.

    Raises:
        EngineError: in one line, when a kernel does not compile or launch on the device.
    """
    pool = torch.cuda.graph_pool_handle()
    try:
        with _sums_in_float32(), torch.cuda.device(device):
            # one for all: cuBLAS keeps a workspace for every stream that it has met
            side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            return [_captured(run, side, pool) for run in runs]
    except (EngineError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        raise EngineError(f"kernels triton: not usable on {device}: {reason}") from error


def finish(device: torch.device) -> None:
    """Wait for what was launched: who takes the time of passes takes it of this one too."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


@dataclass(frozen=True, slots=True)
class CapturedRun:
    """A captured run. A graph knows the addresses of what it works on and no more: the run holds
    the tensors, and is kept with it."""

    graph: Any
    run: Callable[[], None]

    def __call__(self) -> None:
        """Launch it."""
        self.graph.replay()


def _captured(run: Callable[[], None], side: Any, pool: Any) -> CapturedRun:
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        run()
    return CapturedRun(graph, run)


@contextmanager
def _sums_in_float32() -> Iterator[None]:
    """Keep cuBLAS from adding the parts of a split product in half precision."""
    options = torch.backends.cuda.matmul
    names = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
    before = {name: getattr(options, name) for name in names}
    try:
        for name in names:
            setattr(options, name, False)
        yield
    finally:
        for name, value in before.items():
            setattr(options, name, value)
