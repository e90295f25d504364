"""How the time of a token grows on our engine's C++ kernels, with the context and with the layers.

    python benchmarks/engine/growth.py [--model demo] [--dtype bfloat16] [--figure FILE]

Beside it the time in which the same threads read as many bytes (the weights and the cached keys and
values) again and again: the floor of any decoding at one row. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from backends.checkpoints import models
from harness.core.nouns import Model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--figure", type=Path, help="draw it into this file")
    chosen = parser.parse_args()
    result = growth(chosen)
    if chosen.figure is not None:
        draw(result, chosen.figure)
    print(json.dumps(result))


def growth(chosen: argparse.Namespace) -> dict[str, Any]:
    """Microseconds of a plain pass against context and layers, beside the bytes' own time."""
    import torch

    from backends.engine.executors.base import StepRows
    from backends.engine.executors.native import NativeExecutor
    from backends.engine.model.architecture import read_architecture
    from backends.engine.model.weights import load_weights

    directory = models.resolve(Model(chosen.model))
    shape = read_architecture(directory)
    dtype = getattr(torch, chosen.dtype)
    weights = load_weights(directory, shape, dtype)
    result: dict[str, Any] = {"context": {}, "layers": {}}

    def passes(layers: int, context: int) -> dict[str, float]:
        cut = replace(shape, layers=layers)
        part = replace(weights, layers=weights.layers[:layers])
        run = NativeExecutor(part, cut, slots=1, max_len=2304, threads=chosen.threads)
        run.prefill(0, [5 + i % 1000 for i in range(context)])
        rows_ = StepRows.of([(0, context, 7)])
        newest = np.zeros(1, np.int32)
        measured = _microseconds(lambda: run.advance(0, rows_, newest))
        run.close()
        layer = sum(
            t.numel()
            for t in (
                *(part.layers[0].qkv, part.layers[0].out),
                *(part.layers[0].gate_up, part.layers[0].down),
            )
        )
        cache = 2 * layers * shape.kv_size * context
        moved = (layers * layer + part.head.numel() + cache) * dtype.itemsize
        floor = 1e6 * moved / _bytes_per_s(moved)
        return {
            "us": round(measured, 1),
            "bytes": moved,
            "floor_us": round(floor, 1),
            "share_of_floor": round(floor / measured, 3),
        }

    for context in (128, 256, 512, 1024, 2048):
        result["context"][context] = passes(shape.layers, context)
    for layers in range(1, shape.layers + 1):
        result["layers"][layers] = passes(layers, 256)
    return result


def _microseconds(call: Callable[[], object], runs: int = 200) -> float:
    for _ in range(20):
        call()
    found = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return 1e6 * statistics.median(found)


def _bytes_per_s(size: int) -> float:
    """How fast this machine's threads read so many bytes again and again (a sum of integers)."""
    import torch

    memory = torch.ones(size // 8, dtype=torch.int64)
    return size / (_microseconds(memory.sum, 50) / 1e6)


def draw(result: dict[str, Any], path: Path) -> None:
    """The growth as a figure: time per token, and the bytes' own time."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for axis, name in zip(axes, ("context", "layers"), strict=True):
        x = [int(key) for key in result[name]]
        for key, label in (("us", "measured"), ("floor_us", "reading the bytes")):
            axis.plot(x, [point[key] for point in result[name].values()], "o-", label=label)
        axis.set(xlabel=name, ylabel="us per token", ylim=(0, None))
    axes[0].legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
