"""One engine in a process of its own, for `benchmarks/gpu/early_exit.py`.

    python benchmarks/support/early_exit/job.py JOB.json

JOB names a backend, a model, options and runs; each run may `configure` the engine and then has a
`kind`:

steps    seconds of one decode step at each of `batches`: random prompts, submitted together; only
         steps in which every request got a token count, prompts apart
answers  token ids, summed telemetry and seconds of given requests, so many in flight
product  seconds of the fill's floor, one matrix product of random numbers in the fill's shape

The last line is JSON: what the backend says of itself, and one entry per run.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from backends import open_backend
from harness.core.backend import Backend
from harness.core.nouns import Load, Model, Request
from harness.measure.load_loop import run_load


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
    kinds = {"steps": steps, "answers": answers, "product": product}
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


def random_requests(batch: int, prompt_tokens: int, tokens: int, repeat: int) -> list[Request]:
    draw = random.Random(1000 * batch + repeat)
    return [
        Request(
            f"r{number}",
            tuple(draw.randrange(5, 1000) for _ in range(prompt_tokens)),
            tokens,
            ignore_eos=True,
        )
        for number in range(batch)
    ]


def step_seconds(backend: Backend, requests: Sequence[Request]) -> list[float]:
    """The time of each step that gave every request a token, behind another such step."""
    gc.collect()
    gc.freeze()
    for request in requests:
        backend.submit(request)
    finished, found = 0, []
    last: float | None = None
    while finished < len(requests):
        commits = backend.poll()
        now = time.perf_counter()
        if failed := [commit.error for commit in commits if commit.error]:
            raise RuntimeError(failed[0])
        finished += sum(commit.finished is not None for commit in commits)
        whole = len(commits) == len(requests) and all(commit.token_ids for commit in commits)
        if whole and last is not None:
            found.append(now - last)
        if commits:  # an engine that schedules ahead may hand out nothing
            last = now if whole else None
    if len(found) < 4:
        raise RuntimeError(f"{len(found)} steps with all of {len(requests)} requests: too few")
    return found[2:]


def answers(backend: Backend, run: dict[str, Any]) -> dict[str, Any]:
    """What every request was answered, in a closed loop of `concurrency`."""
    stops = tuple(run.get("stop_ids", ()))
    requests = [
        Request(name, tuple(prompt), limit, stop_ids=stops, ignore_eos=not stops)
        for name, prompt, limit in run["requests"]
    ]
    found = run_load(backend, requests, Load("closed", concurrency=run["concurrency"]))
    if failed := [g for g in found if g.finished not in ("stop", "length")]:
        raise RuntimeError(f"{failed[0].request_id}: {failed[0].error}")
    counts: dict[str, float] = {}
    for generation in found:
        for name, count in generation.telemetry.items():
            counts[name] = counts.get(name, 0) + count
    seconds = max(g.commit_ns[-1] for g in found) - min(g.submitted_ns for g in found)
    return {
        "tokens": {g.request_id: list(g.token_ids) for g in found},
        "seconds": seconds / 1e9,
        "telemetry": counts,
    }


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
