"""The demo model's answers to bundled rows, by backends whose settings are not measured."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backends import open_backend
from backends.checkpoints import models
from harness.core.backend import Backend
from harness.core.nouns import Load, Model, Request, Sampling
from harness.measure.load_loop import run_load
from workloads.bundled import rows
from workloads.prompts import encode_prompt

DEMO = models.BUNDLED["demo"]
FIXED = {"threads": 1, "max_num_seqs": 4, "max_model_len": 1024}
WORKLOADS = ("gsm8k", "humaneval", "xsum", "cnn_dailymail")
GREEDY = Sampling()


def opened(name: str, directory: Path = DEMO, dtype: str = "bfloat16", **options: Any) -> Backend:
    return open_backend(name, directory, Model("demo", dtype=dtype), {**FIXED, **options})


def demo_requests(
    count: int,
    sampling: Sampling = GREEDY,
    workloads: Sequence[str] = WORKLOADS,
    tokens: int = 48,
) -> list[Request]:
    """The first `count` rows of each workload, answers of up to `tokens` tokens."""
    tokenizer = models.load_tokenizer(DEMO)
    stops = models.stop_ids(DEMO, tokenizer)
    return [
        Request(f"{name}-{i}", tuple(encode_prompt(tokenizer, name, row)), tokens, sampling, stops)
        for name in workloads
        for i, row in enumerate(rows(name, "test", count, 7))
    ]


def texts(backend: Backend, requests: Sequence[Request], concurrency: int) -> list[list[int]]:
    """Token ids of every answer, in a closed loop."""
    backend.reset()
    found = run_load(backend, requests, Load("closed", concurrency=concurrency))
    assert {g.finished for g in found} <= {"stop", "length"}
    return [g.token_ids for g in found]


def answer(backend: Backend, requests: Sequence[Request], concurrency: int) -> list[list[int]]:
    """The same of a backend that is closed then."""
    found = texts(backend, requests, concurrency)
    backend.close()
    return found


@functools.cache
def plain_texts(count: int, sampling: Sampling) -> list[list[int]]:
    """What plain decoding answers to `demo_requests`."""
    return answer(opened("autoregressive"), demo_requests(count, sampling), 1)
