"""What the `vllm` backend and the load loop cost beside vLLM's own `LLM.generate`.

    python benchmarks/vllm_overhead.py [--model demo] [--requests 32] [--tokens 64] [--repeats 9]

One engine, driven both ways on the same requests: all are submitted at once, greedy, a fixed number
of tokens. The two take turns (A B, B A, ...) after one warm-up each; a repeat's ratio is the
backend's tokens/s over `LLM.generate`'s, next to it in time. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from backends.checkpoints import models
from backends.vllm.arguments import effective, engine_arguments, set_environment
from backends.vllm.backend import VllmBackend
from benchmarks.support.turns import quartiles, random_requests
from harness.core.nouns import Load, Model, Request
from harness.measure.load_loop import run_load

Answers = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--margins", action="store_true", help="measure the option of that name")
    chosen = parser.parse_args()
    llm, backend = load(chosen)
    result: dict[str, Any] = {"load_average": os.getloadavg()[0], "options": backend.info.options}
    for count in chosen.requests:
        requests = random_requests(count, chosen.prompt_tokens, chosen.tokens, 0)
        result[f"requests={count}"] = compare(
            partial(generate, llm, requests),
            partial(drive, backend, requests),
            chosen.repeats,
            count * chosen.tokens,
        )
    print(json.dumps(result))


def load(chosen: argparse.Namespace) -> tuple[Any, VllmBackend]:
    """vLLM's `LLM`, and our backend around the very same engine."""
    directory = models.resolve(Model(chosen.model))
    settings = {name: option.default for name, option in VllmBackend.OPTIONS.items()}
    settings |= {"threads": chosen.threads, "margins": chosen.margins}
    set_environment(chosen.threads)
    from vllm import LLM

    llm = LLM(**engine_arguments(settings, directory, chosen.dtype))
    options = effective(settings, llm.llm_engine)
    return llm, VllmBackend(llm.llm_engine, options, models.stop_ids(directory))


def generate(llm: Any, requests: Sequence[Request]) -> Answers:
    """vLLM's own offline loop."""
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": list(request.prompt_ids)} for request in requests]
    params = SamplingParams(
        temperature=0.0,
        max_tokens=requests[0].max_new_tokens,
        ignore_eos=True,
        detokenize=False,
    )
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def drive(backend: VllmBackend, requests: Sequence[Request]) -> Answers:
    """The harness's load loop over the backend."""
    found = run_load(backend, requests, Load("closed", concurrency=len(requests)))
    return [generation.token_ids for generation in found]


def compare(
    theirs: Callable[[], Answers], ours: Callable[[], Answers], repeats: int, tokens: int
) -> dict[str, Any]:
    """Tokens/s of both and the ratios ours / theirs, taken in turns. Equal answers are required."""
    if theirs() != ours():
        raise RuntimeError("the two loops gave different answers")
    # The load loop collects garbage before its timed window; here that would be within ours.
    gc.collect()
    gc.freeze()
    wall: dict[str, list[float]] = {"theirs": [], "ours": []}
    processor: dict[str, list[float]] = {"theirs": [], "ours": []}
    for repeat in range(repeats):
        turn = [("theirs", theirs), ("ours", ours)]
        for name, run in turn if repeat % 2 == 0 else reversed(turn):
            started, used = time.perf_counter(), time.process_time()
            run()
            wall[name].append(time.perf_counter() - started)
            processor[name].append(time.process_time() - used)
    return {
        "generate_tok_per_s": round(tokens / statistics.median(wall["theirs"]), 1),
        "backend_tok_per_s": round(tokens / statistics.median(wall["ours"]), 1),
        "throughput": ratio(wall["theirs"], wall["ours"]),
        "per_processor_second": ratio(processor["theirs"], processor["ours"]),
    }


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, Any]:
    """Theirs / ours of neighbouring runs: above 1 means that ours takes less time."""
    pairs = [a / b for a, b in zip(theirs, ours, strict=True)]
    return {
        "median": round(statistics.median(pairs), 4),
        "quartiles": [round(q, 4) for q in quartiles(pairs)[::2]],
        "of_the_fastest": round(min(theirs) / min(ours), 4),
    }


if __name__ == "__main__":
    main()
