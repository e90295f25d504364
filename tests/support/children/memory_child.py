"""A process that measures its own resident memory and prints bytes: the peak above what stood
before. ``memory_child weights DIR`` or ``memory_child cache|states SLOTS MAX_LEN USED``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from backends.engine.executors.base import StepRows
from backends.engine.executors.native import NativeExecutor
from backends.engine.model import memory
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
    room: dict[str, Any] = {"slots": 1, "max_len": 16, "threads": 1}
    kept = [NativeExecutor(packed, shape, **room) for _ in range(2)]
    kept[1].greedy(StepRows.of([(0, 0, 1)]))
    return {"loaded": loaded, "opened": above(before)}


def cache(slots: int, max_len: int, used: int, *, states: bool = False) -> dict[str, int]:
    """So many positions in every slot; then one slot filled and let go. With `states` those after
    three layers are kept too."""
    model = random_model("llama", torch.bfloat16)
    room: dict[str, Any] = {"threads": 1, "max_len": max_len}
    NativeExecutor(model.weights, model.architecture, slots=1, **room).close()

    def fill(slot: int, start: int, end: int) -> None:
        for first in range(start, end, 64):
            places = range(first, min(end, first + 64))
            run.segment(0, StepRows([slot] * len(places), places, [1] * len(places)))

    before = reset_peak()
    run = NativeExecutor(model.weights, model.architecture, slots=slots, **room)
    if states:
        run.keep_states((1, 2, 3))
    for slot in range(slots):
        fill(slot, 0, used)
    filled = above(before)
    short = status_bytes("VmRSS")
    fill(0, used, max_len)
    full = status_bytes("VmRSS")
    run.release(0, max_len)
    return {"filled": filled, "long": full - short, "left": status_bytes("VmRSS") - short}


if __name__ == "__main__":
    torch.set_num_threads(1)
    memory.KEPT_BYTES = 1 << 18
    if sys.argv[1] == "weights":
        print(json.dumps(weights(Path(sys.argv[2]))))
    else:
        print(json.dumps(cache(*map(int, sys.argv[2:]), states=sys.argv[1] == "states")))
