"""Measuring what this machine reaches at most: reading memory, and bfloat16 products."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness.core.ceilings import Ceilings

MIB = 2**20
SIZES = (16 * MIB, 64 * MIB, 128 * MIB, 192 * MIB, 1024 * MIB)
"""Working sets: what a model's weights come to when one token after another reads them. They stand
close together where caches end."""
STREAMS = (1, 4, 16)
"""Read side by side by each thread; the best counts."""
REPEATS = 9
PRODUCT = 2048
"""Rows, columns and inner size of the product; four times as large on a GPU."""
TRIED = 256
"""Likewise, of those by which a dtype is chosen."""
HUGE_PAGE = 2 * MIB
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def measure() -> Ceilings:
    """Measure the device that engines would run on: a GPU where there is one. Takes some 10
    seconds, during which nothing else should run."""
    import torch

    return _cuda() if torch.cuda.is_available() else _cpu()


def _cpu() -> Ceilings:
    import torch

    cores = len(os.sched_getaffinity(0))
    counts = sorted({1, *(2**n for n in range(1, 12) if 2**n < cores), cores})
    name, read = _reader()
    before = torch.get_num_threads()
    a, b = torch.randn(2, PRODUCT, PRODUCT).to(_multiplied_as())
    flops: dict[int, float] = {}
    try:
        for threads in counts:
            torch.set_num_threads(threads)
            flops[threads] = 2 * PRODUCT**3 / _seconds(lambda: torch.mm(a, b))
    finally:
        torch.set_num_threads(before)
    rates = {threads: {size: _rate(read, size, threads) for size in SIZES} for threads in counts}
    return Ceilings("cpu", name, rates, flops, _caches())


def _multiplied_as() -> Any:
    """What numbers in bfloat16 are multiplied as: themselves, or float32 where that is faster.
    There kernels make floats of them, and a large product of them as they are takes minutes."""
    import torch

    a, b = torch.randn(2, TRIED, TRIED)
    seconds = {
        dtype: _seconds(partial(torch.mm, a.to(dtype), b.to(dtype)))
        for dtype in (torch.bfloat16, torch.float32)
    }
    return min(seconds, key=seconds.__getitem__)


def _rate(read: Callable[[int, int, int, int], object], size: int, threads: int) -> float:
    """Bytes per second over a buffer in huge pages, as the engine's weights lie."""
    with mmap.mmap(-1, size + HUGE_PAGE) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        import numpy as np

        whole = np.frombuffer(memory, np.uint8)
        whole[:] = 1
        start = whole.ctypes.data + -whole.ctypes.data % HUGE_PAGE
        del whole  # else the mapping cannot be closed
        return size / min(_seconds(partial(read, start, size, threads, n)) for n in STREAMS)


def _reader() -> tuple[str, Callable[[int, int, int, int], object]]:
    """What reads from an address so many bytes with so many threads, each as so many streams; torch
    where nothing compiles."""
    from backends.kernels.cpu import native

    try:
        library = native.library()
    except native.NativeUnavailableError:
        return "torch", _torch_reads
    return f"native-{library.instructions().decode()}", library.read_all


def _torch_reads(address: int, size: int, threads: int, _: int) -> object:
    import ctypes

    import torch

    torch.set_num_threads(threads)
    held = (ctypes.c_int64 * (size // 8)).from_address(address)
    return torch.frombuffer(held, dtype=torch.int64).sum()


def _cuda() -> Ceilings:
    import torch

    cache = torch.cuda.get_device_properties(0).L2_cache_size
    rates: dict[int, float] = {}
    for size in SIZES:
        rates[size] = size / _seconds(torch.ones(size // 4, device="cuda").sum)
    a, b = torch.randn(2, 4 * PRODUCT, 4 * PRODUCT, device="cuda").to(torch.bfloat16)
    flops = 2 * (4 * PRODUCT) ** 3 / _seconds(lambda: torch.mm(a, b))
    return Ceilings("cuda", "torch", {1: rates}, {1: flops}, {"L2": cache})


def _seconds(work: Callable[[], object]) -> float:
    """Shortest time of `work`, the device's part included, after two calls to warm up: what is
    sought is the most that the machine can do, and what disturbs it only ever adds time."""
    import torch

    def wait() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    times = []
    for turn in range(REPEATS + 2):
        begin = time.perf_counter()
        work()
        wait()
        if turn >= 2:
            times.append(time.perf_counter() - begin)
    return min(times)


def _caches() -> dict[str, int]:
    """Of the first core: "L1d", "L2", "L3" in bytes; what Linux tells of them, which on a virtual
    machine with ARM cores may be no size."""
    found: dict[str, int] = {}
    for folder in sorted(CACHES.glob("index*")):
        with contextlib.suppress(OSError, ValueError):
            level, kind, size = (
                (folder / name).read_text().strip() for name in ("level", "type", "size")
            )
            if kind != "Instruction" and size.endswith("K"):
                data = "d" if kind == "Data" else ""
                found[f"L{level}{data}"] = int(size[:-1]) * 1024
    return found
