"""A process that measures its own resident memory and prints bytes: the peak above what stood
before. ``memory_child weights DIR``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from backends.engine.executors.base import StepRows
from backends.engine.executors.native import NativeExecutor
from backends.engine.model.architecture import read_architecture
from backends.engine.model.packed import load_packed
from tests.support.engine.random_models import random_model


def status_bytes(name: str) -> int:
    """A line of the kernel's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def above(before: int) -> int:
    """The peak since `reset_peak`, less what stood then."""
    return status_bytes("VmHWM") - before


def reset_peak() -> int:
    """Begin a new peak; returns what is resident."""
    Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


def weights(directory: Path) -> dict[str, int]:
    """Two executors of a checkpoint that share its packed matrices, after a smaller one of it."""
    warm = random_model("llama", torch.bfloat16)
    NativeExecutor(warm.weights, warm.architecture, slots=1, max_len=16, threads=1).close()
    shape = read_architecture(directory)
    before = reset_peak()
    packed = load_packed(directory, shape, torch.bfloat16)
    loaded = above(before)
    room = {"slots": 1, "max_len": 16, "threads": 1}
    kept = [NativeExecutor(packed, shape, **room) for _ in range(2)]
    kept[1].greedy(StepRows.of([(0, 0, 1)]))
    return {"loaded": loaded, "opened": above(before)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(weights(Path(sys.argv[2]))))
