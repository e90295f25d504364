"""One engine in a process of its own, for `benchmarks/gpu/early_exit.py`.

    python benchmarks/support/early_exit/job.py JOB.json

JOB names a backend, a model, options and runs; each run may `configure` the engine and then has a
`kind`:

steps    seconds of one decode step at each of `batches`: random prompts, submitted together; only
         steps in which every request got a token count, prompts apart
answers  token ids and summed telemetry of given requests, so many in flight
product  seconds of the fill's floor, one matrix product of random numbers in the fill's shape

The last line is JSON: what the backend says of itself, and one entry per run.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from backends import open_backend
from benchmarks.support.turns import answers, counted, random_requests, step_seconds
from harness.core.backend import Backend
from harness.core.nouns import Model, Request


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    began = time.monotonic()
    model = Model(job["model"], dtype=job["dtype"])
    backend: Any = None
    if job["backend"] is not None:
        backend = open_backend(job["backend"], Path(job["model"]), model, job["options"])
    result: dict[str, Any] = {"load_s": round(time.monotonic() - began, 1), "runs": {}}
    if backend is not None:
        result |= {"version": backend.info.version, "options": dict(backend.info.options)}
    kinds = {"steps": steps, "answers": answered, "product": product}
    for run in job["runs"]:
        if "configure" in run:
            backend.configure(run["configure"])
        result["runs"][run["name"]] = kinds[run["kind"]](backend, run)
        print(f"{run['name']}: done after {time.monotonic() - began:.1f} s", flush=True)
    if backend is not None:
        backend.close()
    print(json.dumps(result, default=str))


def steps(backend: Backend, run: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds per step by batch: the median of each repeat, and of these the least."""
    found = {}
    for batch in run["batches"]:
        repeats = []
        for repeat in range(run["repeats"]):
            requests = random_requests(batch, run["prompt_tokens"], run["tokens"], repeat)
            repeats.append(statistics.median(step_seconds(backend, requests)))
        found[str(batch)] = {
            "ms": round(min(repeats) * 1e3, 4),
            "repeats_ms": [round(seconds * 1e3, 4) for seconds in repeats],
        }
    return found


def answered(backend: Backend, run: dict[str, Any]) -> dict[str, Any]:
    """What every request was answered, in a closed loop of `concurrency`."""
    requests = [
        Request(name, tuple(prompt), limit, ignore_eos=True)
        for name, prompt, limit in run["requests"]
    ]
    found = answers(backend, requests, run["concurrency"])
    return {"tokens": {g.request_id: list(g.token_ids) for g in found}, "telemetry": counted(found)}


def product(_: Any, run: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds by exit layer and batch."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, run["dtype"])
    found: dict[str, Any] = {}
    for layer, rows in run["rows"].items():
        weight = torch.randn(rows, run["width"], device=device, dtype=dtype)
        found[layer] = {}
        for batch in run["batches"]:
            x = torch.randn(batch, run["width"], device=device, dtype=dtype)
            seconds = least_seconds(partial(torch.nn.functional.linear, x, weight))
            found[layer][str(batch)] = round(seconds * 1e3, 4)
    return found


def least_seconds(call: Callable[[], object]) -> float:
    """Of one call; on a GPU out of a graph, so that no launch is timed."""
    import torch

    if torch.cuda.is_available():
        from benchmarks.support.device_timing import microseconds

        return microseconds([call] * 8) / 1e6
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
    return best


if __name__ == "__main__":
    main()
