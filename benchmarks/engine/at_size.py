"""Our engine's C++ kernels on models larger than the caches: the share of the memory's own rate.

    python benchmarks/engine/at_size.py [--sizes 0.1b 0.5b 1b llama-3.2-1b] [--rows 2 4 8 16 32]
                                      [--context 200] [--quick]

Random weights in bfloat16. For each size: a step of plain decoding (all layers and the greedy
head) of one sequence beside the time in which the same threads read as many bytes as its weights
and its cached keys and values have; the step of more sequences over that of one; a prompt's tokens
per second beside what torch's `F.linear` takes for the same products. What is compared is timed in
turns, the median counts. The last line is JSON. llama-3.2-1b needs about 8 GB; other work on the
machine spoils all figures of more than one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from backends.engine.executors.base import StepRows
from backends.engine.executors.native import NativeExecutor
from backends.engine.model.architecture import Architecture
from backends.engine.model.memory import aligned
from backends.engine.model.weights import Weights
from backends.kernels.cpu import native
from benchmarks.support.size_model import SIZES, architecture, products, random_weights, token_bytes

CALLS = 4
"""Of one kind on end; the first is not counted: it finds the others' data in the caches."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--rows", nargs="*", type=int, default=[2, 4, 8, 16, 32])
    parser.add_argument("--context", type=int, default=200, help="tokens before a step")
    parser.add_argument("--prompt", type=int, default=1000, help="tokens; 0 for none")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="the least that it can do")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.sizes, chosen.rows, chosen.prompt, chosen.repeats = ["0.1b"], [8], 100, 1
    torch.set_num_threads(chosen.threads)
    library = native.library()
    result: dict[str, Any] = {"kernels": library.instructions().decode(), "sizes": {}}
    for name in chosen.sizes:
        found = result["sizes"][name] = one_size(name, chosen)
        print(f"{name}: {json.dumps(found)}", flush=True)
    print(json.dumps(result))


def one_size(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """All figures of one size; nothing is kept."""
    shape = architecture(name)
    weights = random_weights(shape)
    slots = max(1, *chosen.rows)
    room = max(chosen.context, chosen.prompt) + 8
    run = NativeExecutor(weights, shape, slots=slots, max_len=room, threads=chosen.threads)
    for slot in range(slots):
        run.prefill(slot, [(slot + 7 * i) % shape.vocabulary for i in range(chosen.context)])
    found = {**decoding(run, weights, shape, chosen)}
    if chosen.prompt:
        found |= reading(run, weights, chosen)
    run.close()
    return found


def decoding(
    run: NativeExecutor, weights: Weights, shape: Architecture, chosen: argparse.Namespace
) -> dict[str, Any]:
    """A step at one row beside the floor, and at more rows beside one."""
    cached = 2 * shape.layers * shape.kv_size * chosen.context * weights.head.itemsize
    moved = token_bytes(weights) + cached
    memory = aligned(moved)
    memory[:] = 1
    library = native.library()

    def step(rows: int) -> Callable[[], object]:
        table = StepRows.of([(slot, chosen.context, 5 + slot) for slot in range(rows)])
        wanted = np.arange(rows, dtype=np.int32)
        return lambda: run.advance(0, table, wanted)

    calls = {"floor": lambda: library.read_all(memory.ctypes.data, moved, chosen.threads, 1)}
    calls |= {str(rows): step(rows) for rows in (1, *chosen.rows)}
    times = in_turns(calls, chosen.repeats)
    one = times["1"]
    return {
        "weight_bytes": moved - cached,
        "cached_bytes": cached,
        "floor_bytes_per_s": round(moved / times["floor"]),
        "step_ms": round(1e3 * one, 3),
        "share_of_floor": round(times["floor"] / one, 3),
        "rows_over_one": {str(rows): round(times[str(rows)] / one, 3) for rows in chosen.rows},
    }


def reading(run: NativeExecutor, weights: Weights, chosen: argparse.Namespace) -> dict[str, Any]:
    """A whole prompt beside its products in torch (oneDNN)."""
    tokens = [5 + i % 1000 for i in range(chosen.prompt)]
    matrices = products(weights)
    inputs = {
        size: torch.randn(chosen.prompt, size).to(torch.bfloat16)
        for size in {m.shape[1] for m in matrices}
    }

    def library() -> None:
        for matrix in matrices:
            functional.linear(inputs[matrix.shape[1]], matrix)

    with torch.inference_mode():
        times = in_turns(
            {"ours": lambda: run.prefill(0, tokens), "library": library},
            max(1, chosen.repeats // 3),
        )
    operations = 2 * chosen.prompt * sum(matrix.numel() for matrix in matrices)
    return {
        "prompt_tokens_per_s": round(chosen.prompt / times["ours"], 1),
        "linear_tokens_per_s": round(chosen.prompt / times["library"], 1),
        "prompt_over_linear": round(times["library"] / times["ours"], 3),
        "prompt_flop_per_s": round(operations / times["ours"]),
    }


def in_turns(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each call, a few of one kind on end, then the next kind."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            for turn in range(CALLS):
                started = time.perf_counter()
                call()
                if turn:
                    times[name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in times.items()}


if __name__ == "__main__":
    main()
