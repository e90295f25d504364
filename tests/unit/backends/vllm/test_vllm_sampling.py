"""What is repaired of vLLM's sampling on a CPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from backends.vllm.sampling import expand, expands, keep_generators  # noqa: E402

ROOT = Path(__file__).parents[4]
ENDS = torch.tensor([2, 2, 5], dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_each_token_gets_its_requests_value(dtype: Any) -> None:
    found = expand(torch.tensor([0.75, 8, 0], dtype=dtype), ENDS, 5, replace_from=0, replace_to=1)
    assert found.dtype == dtype
    first = 0.75 if dtype.is_floating_point else 1
    assert found.tolist() == [first, first, 1, 1, 1], "0, also a truncated one, becomes 1"
    assert expand(torch.tensor([0.7, 8, 0.9]), ENDS, 5).tolist() == pytest.approx(
        [0.7, 0.7, 0.9, 0.9, 0.9]
    )


def test_a_function_that_writes_elsewhere_is_found_out() -> None:
    def thrown_away(x: Any, ends: Any, tokens: int) -> Any:
        expand(x, ends, tokens)
        return x.new_zeros(tokens)

    def truncated(x: Any, ends: Any, tokens: int) -> Any:
        return expand(x.long(), ends, tokens).to(x.dtype)

    kept = torch.tensor([0.7, 0.7, 0.9, 0.9, 0.9])
    assert expands(expand)
    assert not expands(thrown_away)
    assert not expands(truncated)
    assert not expands(lambda x, ends, tokens: kept), "what lay in memory was right by chance once"


def test_tokens_that_are_dropped_take_no_random_numbers() -> None:
    seen: list[list[int]] = []
    held = {0: "a", 1: "b", 3: "d", 4: "over"}

    def sample(grammar: str) -> str:
        seen.append(sorted(held))
        return grammar

    runner = SimpleNamespace(
        input_batch=SimpleNamespace(generators=held, num_reqs=4),
        discard_request_mask=SimpleNamespace(np=np.array([False, True, True, False, True])),
        sample_tokens=sample,
    )
    keep_generators(runner)
    assert runner.sample_tokens("grammar") == "grammar"
    assert seen == [[0, 3, 4]]
    assert held == {0: "a", 1: "b", 3: "d", 4: "over"}


CHILD = """
import sys
from backends import open_backend
from backends.checkpoints import models
from harness.core.nouns import Load, Model, Request, Sampling
from harness.measure.load_loop import run_load
from workloads.bundled import rows
from workloads.prompts import encode_prompt

demo = models.BUNDLED["demo"]
tokenizer = models.load_tokenizer(demo)
prompts = [tuple(encode_prompt(tokenizer, "gsm8k", row)) for row in rows("gsm8k", "test", 4)]
asked = [Request(f"r{n}", p, 48, Sampling(0.7, 0.9, n)) for n, p in enumerate(prompts)]
# every prompt is read in several steps
options = {"threads": 1, "kv_cache_gib": 0.125, "max_num_seqs": 8}
options["engine"] = {"max_num_batched_tokens": 32}
backend = open_backend("vllm-speculative", demo, Model("demo", dtype="float32"), options)
told = [g.telemetry for g in run_load(backend, asked, Load("closed", concurrency=4))]
print("accepted", sum(t["accepted"] for t in told) / sum(t["drafted"] for t in told))
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
def test_sampled_drafts_are_accepted() -> None:
    """On a CPU: 3% without the repair, and no end without the other."""
    command = [sys.executable, "-c", CHILD]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("accepted")]
    assert float(line.split()[1]) > 0.6
