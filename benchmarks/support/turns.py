"""Systems that take turns on the same work, so that a drifting machine hits all alike."""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backends import open_backend
from backends.checkpoints import models
from harness.core.backend import Backend
from harness.core.nouns import Generation, Load, Model, Request, Sampling
from harness.measure.load_loop import run_load
from workloads.bundled import rows
from workloads.prompts import encode_prompt

MODES: dict[str, dict[str, Any]] = {
    "eager": {"enforce_eager": True},
    "norm": {"enforce_eager": True, "compiled_norm": True},
    "compiled": {"enforce_eager": False},
}
"""Options of both sides."""
Wanted = tuple[str, Path, Mapping[str, Any]]
"""Backend, model folder, options."""
WORKLOADS = ("cnn_dailymail", "xsum", "humaneval", "gsm8k")
BATCHES = (1, 4, 16)
PROMPT, TOKENS = 32, 48
"""Length of the random prompts that steps are timed on, and of their answers."""


def requests_of(
    model: str,
    workload: str,
    count: int,
    sampling: Sampling | None = None,
    *,
    tokens: int = 192,
    seed: int = 0,
    between: str = "-",
    ignore_eos: bool = False,
) -> list[Request]:
    """A workload's bundled test rows, those that `seed` gives first, as requests to a model by name
    or folder; `between` stands between the workload and the row's place in their ids."""
    directory = models.resolve(Model(model))
    tokenizer = models.load_tokenizer(directory)
    stops = models.stop_ids(directory, tokenizer)
    return [
        Request(
            f"{workload}{between}{place}",
            tuple(encode_prompt(tokenizer, workload, row)),
            tokens,
            sampling or Sampling(),
            stops,
            ignore_eos=ignore_eos,
        )
        for place, row in enumerate(rows(workload, "test", count, seed))
    ]


def mixed_requests(
    model: str, count: int, workloads: Sequence[str] = WORKLOADS, **told: Any
) -> list[Request]:
    """So many, the workloads in turn."""
    each = -(-count // len(workloads))
    found = [requests_of(model, workload, each, **told) for workload in workloads]
    return [request for together in zip(*found, strict=True) for request in together][:count]


@contextmanager
def engines(chosen: argparse.Namespace, mode: str, **wanted: Wanted) -> Iterator[dict[str, Any]]:
    """Backends by name."""
    threads = {} if chosen.threads is None else {"threads": chosen.threads}
    found: dict[str, Any] = {}
    try:
        for name, (backend, folder, options) in wanted.items():
            model = Model(str(folder), dtype=chosen.dtype)
            found[name] = open_backend(
                backend, folder, model, {**MODES[mode], **threads, **options}
            )
        yield found
    finally:
        for backend in found.values():
            backend.close()


def in_turns(calls: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """What each call returns, there and back again, after one round that does not count."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(-1, repeats):
        for name in list(calls)[:: 1 if repeat % 2 else -1]:
            value = calls[name]()
            if repeat >= 0:
                found[name].append(value)
    return found


def spread(above: Sequence[float], below: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles of the ratios of neighbouring turns."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    low, middle, high = quartiles(ratios)
    return {"ratio": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)]}


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """The three quartiles; of a single value, itself."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high


def random_requests(batch: int, prompt_tokens: int, tokens: int, repeat: int) -> list[Request]:
    """Random prompts: what they say does not matter for the time that they take."""
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


def step_ms(backend: Any, batch: int) -> float:
    """The median decode step of `batch` random prompts, in milliseconds."""
    return 1e3 * statistics.median(step_seconds(backend, random_requests(batch, PROMPT, TOKENS, 0)))


def answers(backend: Any, requests: Sequence[Request], concurrency: int) -> list[Generation]:
    """Every request in a closed loop, no cache kept. Raises `RuntimeError` when one fails."""
    backend.reset()
    found = run_load(backend, requests, Load("closed", concurrency=concurrency))
    if failed := [g for g in found if g.finished not in ("stop", "length")]:
        raise RuntimeError(f"{failed[0].request_id}: {failed[0].error}")
    return found


def tokens_per_second(done: Sequence[Generation]) -> float:
    """Output tokens from the first submit to the last commit."""
    nanoseconds = max(g.commit_ns[-1] for g in done) - min(g.submitted_ns for g in done)
    return 1e9 * sum(len(g.token_ids) for g in done) / nanoseconds


def seconds_per_token(done: Sequence[Generation]) -> float:
    """From a request's first commit to its last; the geometric mean over the requests."""
    return statistics.geometric_mean(
        (g.commit_ns[-1] - g.commit_ns[0]) / 1e9 / (len(g.token_ids) - g.commit_tokens[0])
        for g in done
        if len(g.commit_ns) > 1
    )


def counted(done: Sequence[Generation]) -> dict[str, float]:
    """The counts of all answers together."""
    sums: dict[str, float] = {}
    for generation in done:
        for name, count in generation.telemetry.items():
            sums[name] = sums.get(name, 0) + count
    return sums
