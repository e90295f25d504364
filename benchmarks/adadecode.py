"""How much faster our engine and AdaDecode on it are than what.

    python benchmarks/adadecode.py [--requests 12] [--repeats 5] [--model demo] [--heads auto]

One request at a time, the systems in turns on the same requests: transformers' generate, vLLM eager
and compiled, plain decoding, AdaDecode with its own choice. Ratios are medians over neighbouring
turns, of decode time per token (prompts apart). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from backends import open_backend
from backends.checkpoints import models
from benchmarks.support.turns import (
    WORKLOADS,
    answers,
    in_turns,
    requests_of,
    seconds_per_token,
    spread,
)
from harness.core.backend import Backend
from harness.core.nouns import Model, Request

PLAIN = "autoregressive"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--requests", type=int, default=12, help="of each workload")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--heads", default="auto", help="the exit heads of --model")
    parser.add_argument("--without-vllm", action="store_true")
    chosen = parser.parse_args()
    result: dict[str, Any] = {"load_average": os.getloadavg()[0], "dtype": chosen.dtype}
    print(json.dumps(result | speed(chosen)))


def opened(chosen: argparse.Namespace, name: str, **options: Any) -> Any:
    """A backend on the benchmark's model."""
    model = Model(chosen.model, dtype=chosen.dtype)
    threads = {} if chosen.threads is None else {"threads": chosen.threads}
    return open_backend(name, models.resolve(model), model, {**threads, **options})


def _differ(expected: Sequence[list[int]], found: Sequence[list[int]]) -> int:
    return sum(a != b for a, b in zip(expected, found, strict=True))


def speed(chosen: argparse.Namespace) -> dict[str, Any]:
    """Decode speed of every system over that of plain decoding, workload by workload."""
    plain = opened(chosen, PLAIN)
    adaptive = opened(chosen, "adadecode", heads=chosen.heads)
    systems: dict[str, Callable[[Sequence[Request]], float]] = {
        PLAIN: partial(decode_s, plain),
        "adadecode": partial(decode_s, adaptive),
        "transformers": transformers_generate(chosen),
    }
    if not chosen.without_vllm:
        for name, eager in (("vllm eager", True), ("vllm compiled", False)):
            engine = opened(chosen, "vllm", enforce_eager=eager)
            systems[name] = partial(decode_s, engine)
    result: dict[str, Any] = {"adadecode chose": dict(adaptive.info.options)}
    for workload in WORKLOADS:
        requests = requests_of(chosen.model, workload, chosen.requests)
        calls = {name: partial(decode, requests) for name, decode in systems.items()}
        found = in_turns(calls, chosen.repeats)
        result[workload] = {
            name: spread(found[PLAIN], times) for name, times in found.items() if name != PLAIN
        }
        texts = [[g.token_ids for g in answers(b, requests, 1)] for b in (plain, adaptive)]
        result[workload]["answers that differ"] = _differ(*texts)
        result[workload]["autoregressive tok/s"] = round(1 / statistics.median(found[PLAIN]), 1)
    return result


def decode_s(backend: Backend, requests: Sequence[Request]) -> float:
    return seconds_per_token(answers(backend, requests, 1))


def transformers_generate(chosen: argparse.Namespace) -> Callable[[Sequence[Request]], float]:
    """The same model in transformers' `generate`, the same number of tokens as it would give."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.generation.streamers import BaseStreamer

    directory = models.resolve(Model(chosen.model))
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=getattr(torch, chosen.dtype))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device).eval()

    class Stamps(BaseStreamer):  # type: ignore[misc]
        """The time of each token; the first call brings the prompt."""

        def __init__(self) -> None:
            self.times: list[float] = []

        def put(self, value: Any) -> None:
            self.times.append(time.perf_counter())

        def end(self) -> None:
            pass

    def decode(requests: Sequence[Request]) -> float:
        found = []
        for request in requests:
            ids = torch.tensor([request.prompt_ids], device=device)
            stamps = Stamps()
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=request.max_new_tokens,
                do_sample=False,
                eos_token_id=list(request.stop_ids),
                pad_token_id=0,
                streamer=stamps,
            )
            times = stamps.times[1:]
            if len(times) > 1:
                found.append((times[-1] - times[0]) / (len(times) - 1))
        return statistics.geometric_mean(found)

    return decode


if __name__ == "__main__":
    main()
