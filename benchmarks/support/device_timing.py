"""Timing on a CUDA device, shared by the GPU benchmarks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

GIB = 1 << 30


def microseconds(launches: Sequence[Callable[[], object]], repeats: int = 15) -> float:
    """Median time of one launch, in a CUDA graph that runs them all in turn.

    Give as many launches, on inputs of their own, as it takes to exceed the L2 cache: then each
    finds its inputs in the device's memory, as it would among a model's other layers.
    """
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for launch in launches:
            launch()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    for _ in range(3):
        graph.replay()
    times: list[float] = []
    for _ in range(repeats):
        start, end = _event(), _event()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times) * 1000 / len(launches)


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def ceilings() -> dict[str, float]:
    """What this device reaches: bytes per second read and written by a copy, and read alone by a
    sum; FLOP per second of a large bfloat16 product of random numbers."""
    source = torch.randn(GIB // 4, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * source.nbytes / microseconds([lambda: target.copy_(source)])
    total = torch.empty((), device="cuda")
    read = source.nbytes / microseconds([lambda: torch.sum(source, (0,), out=total)])
    a, b = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
    c = torch.empty_like(a)
    product = 2 * 8192**3 / microseconds([lambda: torch.mm(a, b, out=c)])
    return {
        "copy_bytes_per_s": copied * 1e6,
        "read_bytes_per_s": read * 1e6,
        "bf16_flop_per_s": product * 1e6,
    }


def describe() -> dict[str, str]:
    """The device and the software that these figures belong to."""
    import triton

    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": str(triton.__version__),
    }
