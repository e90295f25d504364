"""Our engine and AdaDecode on it: same text, and how much faster than what.

    python benchmarks/adadecode.py [--parts consistency speed batch] [--requests 12]
                                   [--repeats 5] [--model demo] [--heads auto]

consistency  the text of every policy against plain decoding's, on bundled test rows: greedy and
             sampled, bfloat16 and float32, thresholds 0 to 1, 1 to 8 drafts, alone and in batches
speed        one request at a time, the systems in turns on the same requests: transformers'
             generate, vLLM eager and compiled, plain decoding, AdaDecode with its own choice
batch        output tokens/s of AdaDecode over plain decoding's against requests in flight

Ratios are medians over neighbouring turns, of decode time per token (prompts apart). The last line
is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from backends import open_backend
from backends.checkpoints import exit_heads, models
from benchmarks.support.turns import quartiles
from harness.core.backend import Backend
from harness.core.nouns import Generation, Load, Model, Request, Sampling
from harness.measure.load_loop import run_load
from workloads.bundled import rows
from workloads.prompts import encode_prompt

WORKLOADS = ("cnn_dailymail", "xsum", "humaneval", "gsm8k")
GAMMAS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
NEW_TOKENS = 192


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parts = {"consistency": consistency, "speed": speed, "batch": batch}
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--model", default="demo")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--requests", type=int, default=12, help="of each workload")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--heads", default="auto", help="the exit heads of --model")
    parser.add_argument("--without-vllm", action="store_true")
    chosen = parser.parse_args()
    result: dict[str, Any] = {"load_average": os.getloadavg()[0], "dtype": chosen.dtype}
    for part in chosen.parts:
        result[part] = parts[part](chosen)
        print(f"{part}: {json.dumps(result[part])}", flush=True)
    print(json.dumps(result))


def requests_of(
    model: str, workload: str, count: int, sampling: Sampling | None = None
) -> list[Request]:
    """The workload's first bundled test rows as requests."""
    directory = models.resolve(Model(model))
    tokenizer = models.load_tokenizer(directory)
    stops = models.stop_ids(directory, tokenizer)
    return [
        Request(
            f"{workload}-{number}",
            tuple(encode_prompt(tokenizer, workload, row)),
            NEW_TOKENS,
            sampling or Sampling(),
            stops,
        )
        for number, row in enumerate(rows(workload, "test", count, 0))
    ]


def opened(chosen: argparse.Namespace, name: str, dtype: str | None = None, **options: Any) -> Any:
    """A backend on the benchmark's model."""
    model = Model(chosen.model, dtype=dtype or chosen.dtype)
    threads = {} if chosen.threads is None else {"threads": chosen.threads}
    return open_backend(name, models.resolve(model), model, {**threads, **options})


def answers(backend: Backend, requests: Sequence[Request], concurrency: int) -> list[Generation]:
    """Every request in a closed loop. Raises `RuntimeError` when one fails."""
    found = run_load(backend, requests, Load("closed", concurrency=concurrency))
    if failed := [g for g in found if g.finished not in ("stop", "length")]:
        raise RuntimeError(f"{failed[0].request_id}: {failed[0].error}")
    return found


def consistency(chosen: argparse.Namespace) -> dict[str, Any]:
    """Requests compared with plain decoding, and how many of them differ."""
    compared = different = 0
    totals: dict[str, float] = {}
    samplings = (Sampling(), Sampling(0.8, 0.95, seed=1))
    sets = exit_sets(chosen)
    for dtype, sampling in itertools.product(("bfloat16", "float32"), samplings):
        requests = [
            r for w in WORKLOADS for r in requests_of(chosen.model, w, chosen.requests, sampling)
        ]
        plain = opened(chosen, "autoregressive", dtype)
        expected = [g.token_ids for g in answers(plain, requests, 1)]
        in_batch = [g.token_ids for g in answers(plain, requests, 8)]
        plain.close()
        compared, different = compared + len(expected), different + _differ(expected, in_batch)
        for number, gamma in enumerate(GAMMAS):
            for drafts in range(1, 9):
                layers = sets[(number + drafts) % len(sets)]
                system = opened(
                    chosen, "adadecode", dtype,
                    heads=chosen.heads, gamma=gamma, max_drafts=drafts, exit_layers=layers,
                )  # fmt: skip
                found = answers(system, requests, (1, 4)[drafts % 2])
                system.close()
                compared += len(found)
                different += _differ(expected, [g.token_ids for g in found])
                for generation in found:
                    for name in ("drafted", "accepted"):
                        totals[name] = totals.get(name, 0) + generation.telemetry.get(name, 0)
    return {"compared": compared, "different": different, **totals}


def exit_sets(chosen: argparse.Namespace) -> list[list[int]]:
    """Some sets of exit layers that the heads have: shallow, deep, one, two and three."""
    directory = models.resolve(Model(chosen.model))
    where = exit_heads.find_folder(chosen.heads, directory)
    if where is None:
        raise RuntimeError("the consistency part needs trained heads")
    known = list(exit_heads.open_folder(where, directory).layers)
    middle = known[len(known) // 2]
    sets = ([known[0]], known[:6:2], sorted({known[0], middle}), [middle])
    return [found for found in sets if found]


def _differ(expected: Sequence[list[int]], found: Sequence[list[int]]) -> int:
    return sum(a != b for a, b in zip(expected, found, strict=True))


@dataclass(frozen=True, slots=True)
class System:
    """Something that answers requests one at a time; seconds per token after the first."""

    name: str
    decode: Callable[[Sequence[Request]], list[float]]


def speed(chosen: argparse.Namespace) -> dict[str, Any]:
    """Decode speed of every system over that of plain decoding, workload by workload."""
    plain = opened(chosen, "autoregressive")
    adaptive = opened(chosen, "adadecode", heads=chosen.heads)
    systems = [
        System("autoregressive", partial(seconds_per_token, plain)),
        System("adadecode", partial(seconds_per_token, adaptive)),
        System("transformers", transformers_generate(chosen)),
    ]
    if not chosen.without_vllm:
        for name, eager in (("vllm eager", True), ("vllm compiled", False)):
            engine = opened(chosen, "vllm", enforce_eager=eager)
            systems.append(System(name, partial(seconds_per_token, engine)))
    result: dict[str, Any] = {"adadecode chose": dict(adaptive.info.options)}
    for workload in WORKLOADS:
        requests = requests_of(chosen.model, workload, chosen.requests)
        for system in systems:
            system.decode(requests[:2])
        found: dict[str, list[list[float]]] = {system.name: [] for system in systems}
        for repeat in range(chosen.repeats):
            for system in systems if repeat % 2 == 0 else reversed(systems):
                found[system.name].append(system.decode(requests))
        result[workload] = {
            name: _ratio(found["autoregressive"], times)
            for name, times in found.items()
            if name != "autoregressive"
        }
        texts = [[g.token_ids for g in answers(b, requests, 1)] for b in (plain, adaptive)]
        result[workload]["answers that differ"] = _differ(*texts)
        result[workload]["autoregressive tok/s"] = round(
            1 / statistics.median(itertools.chain.from_iterable(found["autoregressive"])), 1
        )
    return result


def _ratio(plain: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Speed over plain decoding's: geometric mean over requests, median over turns."""
    turns = [
        float(np.exp(np.mean(np.log(a)) - np.mean(np.log(b))))
        for a, b in zip(plain, other, strict=True)
    ]
    low, _, high = quartiles(turns)
    return {
        "over autoregressive": round(statistics.median(turns), 3),
        "quartiles": [round(low, 3), round(high, 3)],
    }


def seconds_per_token(backend: Backend, requests: Sequence[Request]) -> list[float]:
    """Per request, from the first token's commit to the last's."""
    return [
        (g.commit_ns[-1] - g.commit_ns[0]) / 1e9 / (len(g.token_ids) - g.commit_tokens[0])
        for g in answers(backend, requests, 1)
        if len(g.commit_ns) > 1
    ]


def transformers_generate(chosen: argparse.Namespace) -> Callable[[Sequence[Request]], list[float]]:
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

    def decode(requests: Sequence[Request]) -> list[float]:
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
        return found

    return decode


def batch(chosen: argparse.Namespace) -> dict[str, Any]:
    """Throughput with 1 to 16 requests in flight, a mix of all workloads."""
    plain = opened(chosen, "autoregressive")
    adaptive = opened(chosen, "adadecode", heads=chosen.heads)
    requests = [r for w in WORKLOADS for r in requests_of(chosen.model, w, chosen.requests)]

    def seconds(system: Backend, concurrency: int) -> float:
        found = answers(system, requests, concurrency)
        last = max(g.commit_ns[-1] for g in found)
        return (last - min(g.submitted_ns for g in found)) / 1e9

    result: dict[str, Any] = {}
    for concurrency in (1, 2, 4, 8, 16):
        ratios, tokens = [], []
        for repeat in range(chosen.repeats):
            pair = [plain, adaptive] if repeat % 2 == 0 else [adaptive, plain]
            times = {id(system): seconds(system, concurrency) for system in pair}
            ratios.append(times[id(plain)] / times[id(adaptive)])
            tokens.append(times[id(plain)])
        low, middle, high = quartiles(ratios)
        result[str(concurrency)] = {
            "adadecode over autoregressive": round(middle, 3),
            "quartiles": [round(low, 3), round(high, 3)],
            "autoregressive over itself alone": round(
                result.get("1", {}).get("seconds", statistics.median(tokens))
                / statistics.median(tokens),
                3,
            ),
            "seconds": round(statistics.median(tokens), 4),
        }
    return result


if __name__ == "__main__":
    main()
