"""Where a step of one engine goes: its kernels, the host, and waiting.

    python -m benchmarks.gpu.step_profile [--backend vllm-early-exit] [--shape llama-3.1-8b]
                                          [--options JSON] [--in-flight 1] [--tokens 64]

Opens the backend on random weights with the demo model's decisions replayed and decodes the same
requests three times: as they are (milliseconds of a step, the median), under cProfile (what the
host does, by its own time), and under torch's profiler (by kernel, and how long the device was
busy). Profilers make steps longer: only shares of theirs mean anything. The last line is JSON.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import pstats
import statistics
from collections import Counter
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from backends import open_backend
from backends.checkpoints import models
from benchmarks.support.turns import random_requests, step_seconds
from harness.core.backend import Backend
from harness.core.nouns import Model

SHOWN = 30
PROMPT = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", default="vllm-early-exit")
    parser.add_argument("--shape", default="llama-3.1-8b")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--options", type=json.loads, default={}, help="of the backend, as JSON")
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    chosen = parser.parse_args()
    model = Model(chosen.shape, dtype=chosen.dtype, shape=True)
    options = {"replay": "demo", "max_model_len": 512, **chosen.options}
    backend = open_backend(chosen.backend, models.resolve(model), model, options)
    try:
        print(json.dumps({"backend": chosen.backend, **measured(backend, chosen)}))
    finally:
        backend.close()


def measured(backend: Backend, chosen: argparse.Namespace) -> dict[str, Any]:
    """The three ways."""

    def steps(repeat: int) -> list[float]:
        given = random_requests(chosen.in_flight, PROMPT, chosen.tokens, repeat)
        return step_seconds(backend, given)

    steps(0)
    plain = [1e3 * seconds for seconds in steps(1)]
    host = cProfile.Profile()
    host.enable()
    steps(2)
    host.disable()
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as traced:
        under = steps(3)
    text = io.StringIO()
    pstats.Stats(host, stream=text).sort_stats("tottime").print_stats(SHOWN)
    print(text.getvalue())
    kernels: Counter[str] = Counter()
    count = 0
    for event in traced.events():
        if event.device_type.name == "CUDA":
            kernels[event.name] += event.device_time
            count += 1
    for name, microseconds in kernels.most_common(SHOWN):
        print(f"{microseconds / len(under):10.1f} us a step  {name[:90]}")
    return {
        "ms": round(statistics.median(plain), 3),
        "ms_quartiles": [round(x, 3) for x in statistics.quantiles(plain, n=4)],
        "under_the_profiler_ms": round(1e3 * statistics.median(under), 3),
        "kernels_ms": round(sum(kernels.values()) / 1e3 / len(under), 3),
        "kernels": round(count / len(under), 1),
    }


if __name__ == "__main__":
    main()
