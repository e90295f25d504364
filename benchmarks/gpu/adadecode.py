"""Our engine's plain decoding of one sequence on a GPU, in the shape of Llama-3.1-8B.

    python benchmarks/gpu/adadecode.py

Random weights, by graph: time per token against the floor of the bytes it reads; what segments and
exit heads cost, and all of it again where calls have more rows. The last line is JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.support.size_model import architecture, random_weights, token_bytes

SHAPE = "llama-3.1-8b"
CONTEXTS = (128, 1024, 1900)
TOKENS = 128
MAX_LEN = 2048
ROWS = 8
MORE_ROWS = (16, 32, 64)
DEVICE = "cuda"
EXITS = (8, 16, 24)


def main() -> None:
    if not torch.cuda.is_available():
        print("gpu/adadecode: needs a CUDA device")
        return
    print(json.dumps(engine()))


def seconds(run: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def engine() -> dict[str, Any]:
    """Milliseconds per token at some contexts, the floor, and the costs of the parts."""
    from backends.engine.executors.cuda import CudaExecutor
    from backends.engine.model.heads import ExitHead
    from benchmarks.support.device_timing import ceilings, describe

    shape = architecture(SHAPE)
    ceiling = ceilings()
    fastest = max(ceiling["copy_bytes_per_s"], ceiling["read_bytes_per_s"])
    weights = random_weights(shape, device=DEVICE)
    read = token_bytes(weights)
    result: dict[str, Any] = {**describe(), **ceiling, "rows": ROWS, "weight_bytes": read}
    sizes: dict[str, Any] = {"slots": 1, "max_len": MAX_LEN, "rows": ROWS}
    plain = CudaExecutor(weights, shape, **sizes)
    result["ms_per_token"], result["share_of_floor"] = {}, {}
    for context in CONTEXTS:
        per_token = min(decode(plain, context) for _ in range(3))
        cached = 2 * 2 * shape.layers * shape.kv_size * (context + TOKENS // 2)
        result["ms_per_token"][str(context)] = round(per_token * 1e3, 4)
        floor = (read + cached) / fastest
        result["share_of_floor"][str(context)] = round(floor / per_token, 3)
    plain.close()

    def heads(kind: str) -> list[ExitHead]:
        size = shape.vocabulary // (4 if kind == "shortlist" else 1)
        ids = torch.arange(size, device=DEVICE) if kind == "shortlist" else None
        matrix = weights.head[:size].contiguous()
        return [ExitHead(layer, matrix, ids) for layer in EXITS]

    for kind in ("bf16", "shortlist"):
        executor = CudaExecutor(weights, shape, heads(kind), **sizes)
        result[f"costs_{kind}"] = costs(executor)
        executor.close()
    result["by_rows"] = {}
    for rows in MORE_ROWS:
        executor = CudaExecutor(weights, shape, heads("shortlist"), **{**sizes, "rows": rows})
        found = costs(executor)
        executor.close()
        executor = CudaExecutor(weights, shape, **{**sizes, "rows": rows})
        found["ms_per_token"] = round(min(decode(executor, CONTEXTS[1]) for _ in range(3)) * 1e3, 4)
        result["by_rows"][str(rows)] = found
        executor.close()
    return result


def decode(executor: Any, context: int) -> float:
    """Seconds per token of one greedy sequence after a prompt of `context` tokens."""
    import numpy as np

    from backends.engine.executors.base import StepRows

    executor.prefill(0, [(i * 31) % 100000 + 5 for i in range(context)])
    wanted = np.zeros(1, np.int32)

    def run() -> None:
        token = 17
        for position in range(context, context + TOKENS):
            ((token,), _) = executor.advance(0, StepRows.of([(0, position, token)]), wanted)

    return seconds(run) / TOKENS


def costs(executor: Any) -> dict[str, Any]:
    """Microseconds of each segment without waiting for it, and of each head with its result."""
    from backends.engine.executors.base import StepRows

    executor.prefill(0, list(range(5, 505)))
    rows, repeats = StepRows.of([(0, 500, 17)]), 20

    def microseconds(call: Callable[[], object]) -> float:
        call()
        run = seconds(lambda: [call() for _ in range(repeats)])
        return round(run / repeats * 1e6, 1)

    numbers = range(len(EXITS) + 1)
    return {
        "segment_us": [microseconds(partial(executor.segment, i, rows)) for i in numbers],
        "exit_head_us": [microseconds(partial(executor.exit_head, i, rows)) for i in numbers[:-1]],
        "final_head_us": microseconds(partial(executor.greedy, rows)),
    }


if __name__ == "__main__":
    main()
