"""Correctness on the device, for `benchmarks/gpu/early_exit.py`."""

from __future__ import annotations

import random
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.support.early_exit.jobs import ROOT, SAME_RUNNER, Jobs, engine_options

SCHEDULE = [2, 8, 5, 2]
LIMITS = {"max_num_seqs": 6, "max_model_len": 256, "kv_cache_gib": 0.125}
DTYPES = ("bfloat16", "float32")
"""vLLM has another attention backend for each, and with it another way to write the cache."""


def tests(jobs: Jobs) -> dict[str, Any]:
    """The kernels' tests, and those of the plugin's answers against plain PyTorch."""
    import torch

    # its options belong to the project's own versions of pytest and of the libraries
    plain = "-o addopts=--import-mode=importlib -o filterwarnings=default"
    pytest = f"{shlex.quote(sys.executable)} -m pytest -q {plain}"
    skipped = " ".join(f"--ignore tests/kernels/test_{n}.py" for n in ("interpreted", "compiled"))
    kernels, environment = "tests/kernels", {}
    if not torch.cuda.is_available():
        names = ("fill_cache", "exit_confidence")
        kernels = " ".join(f"tests/kernels/ops/test_{name}.py" for name in names)
        environment = {"TRITON_INTERPRET": "1"}
    # most of the time goes into compiling, on the host
    side_by_side = " -n 8" if find_spec("xdist") and not jobs.tiny else ""
    found = {}
    command = f"{pytest} {skipped} {kernels}{side_by_side}"
    found["kernels"] = last_line(jobs.shell("tests-kernels", command, 300, environment))
    exits = Path("tests/e2e/test_early_exit.py")
    if (ROOT / exits).exists() and not jobs.tiny:
        found["exits"] = last_line(jobs.shell("tests-exits", f"{pytest} -x {exits}", 400))
    return found


def last_line(text: str | None) -> str:
    return (text or "failed").rstrip().splitlines()[-1]


def equal(jobs: Jobs) -> dict[str, Any]:
    """Answers of a tiny random model that have to be equal, and some that must not be."""
    from tests.support.tiny_llama import write_tiny_llama

    model = write_tiny_llama(jobs.out / "tiny-llama")
    return {dtype: equal_in(jobs, model, dtype) for dtype in (DTYPES[1:] if jobs.tiny else DTYPES)}


def equal_in(jobs: Jobs, model: Path, dtype: str) -> dict[str, Any]:
    """The pairs of one dtype: how many of the answers are equal."""
    answers: dict[str, dict[str, list[int]]] = {}
    compiled = [] if "graphs" not in jobs.modes else ["graphs", "segments", "compiled"]
    for mode in [m for m in jobs.modes if m == "eager"] + compiled:
        for backend in ("vllm", "vllm-early-exit"):
            if mode in ("compiled", "segments") and (backend == "vllm" or jobs.tiny):
                continue
            answers |= engine_answers(jobs, model, dtype, backend, mode)
    pairs = [
        ("vllm eager", "never eager"),
        ("vllm graphs", "never graphs"),
        ("schedule graphs", "schedule compiled"),
        ("schedule eager", "schedule graphs"),
        ("never segments", "never graphs"),
        ("schedule segments", "schedule graphs"),
        ("never eager", "schedule eager"),
    ]
    found = {}
    for one, other in pairs:
        if one in answers and other in answers:
            found[f"{one} = {other}"] = same(answers[one], answers[other])
            print(f"{dtype}: {one} = {other}: {found[f'{one} = {other}']}", flush=True)
    return found


def engine_answers(
    jobs: Jobs, model: Path, dtype: str, backend: str, mode: str
) -> dict[str, dict[str, list[int]]]:
    """Answers by "WHAT MODE" of one engine; more requests than fit, so that they join and leave."""
    draw = random.Random(1)
    requests = [
        [f"r{n}", [draw.randrange(3, 1000) for _ in range(draw.randrange(1, 60))], 24]
        for n in range(6 if jobs.tiny else 16)
    ]
    run = {"kind": "answers", "requests": requests, "concurrency": 5}
    runs: list[dict[str, Any]] = [{**run, "name": "vllm"}]
    # little of a GPU: engines may run beside one another
    beside: dict[str, Any] = {"engine": {"gpu_memory_utilization": 0.1}}
    others: dict[str, Any] = {"threads": 1} if jobs.tiny else beside
    if backend != "vllm":
        schedule = {"measure": "schedule", "layers": SCHEDULE}
        runs = [
            {**run, "name": "never", "configure": {"measure": "never"}},
            {**run, "name": "schedule", "configure": schedule},
        ]
        others |= schedule
    done = jobs.engine(
        f"equal-{dtype}-{backend}-{mode}",
        backend,
        model,
        engine_options(mode, (1, 2, 4, 6), **LIMITS, **others),
        runs,
        dtype=dtype,
        environment=SAME_RUNNER,
    )
    found = done["runs"] if done else {}
    return {f"{name} {mode}": result["tokens"] for name, result in found.items()}


def same(one: Mapping[str, Sequence[int]], other: Mapping[str, Sequence[int]]) -> str:
    """How many answers are equal, and how long the others stay so."""
    count = sum(one[name] == other[name] for name in one)
    shared = [
        next((i for i, (a, b) in enumerate(zip(one[n], other[n], strict=False)) if a != b), 0)
        for n in one
        if one[n] != other[n]
    ]
    rest = f"; the others for {sum(shared) / len(shared):.1f} tokens" if shared else ""
    return f"{count} of {len(one)}{rest}"
