"""Replayed decisions take the time of real ones: the same work on the model that was recorded.

    python benchmarks/soundness/replay.py [--systems adadecode vllm ...] [--concurrency 1 4]
                                          [--requests 8] [--repeats 7] [--threads 1] [--quick]

Each system is opened three times with the same options: once to record its decisions, then for
real and as a replay of them, in turns on the same requests. Ratios are of output tokens per second,
real over replayed, and of CPU time ("cpu", which other work disturbs less), replayed over real: 1
where replaying costs nothing. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from backends import open_backend
from backends.checkpoints import models
from benchmarks.support.turns import answers, in_turns, requests_of, spread, tokens_per_second
from harness.core.backend import Backend
from harness.core.nouns import (
    Generation,
    Load,
    Model,
    Request,
    Trial,
    TrialRecord,
    Workload,
)
from results.traces.file import write_trace
from results.traces.recording import make_trace

DEMO = "demo"
WORKLOADS = ("gsm8k", "humaneval", "xsum")
NEW_TOKENS = 128
SYSTEMS: dict[str, dict[str, Any]] = {
    "adadecode": {"gamma": 0.6, "exit_layers": [2, 4, 6]},
    "autoregressive": {},
    "vllm": {},
    "vllm-early-exit": {"layers": [2, 4, 6], "threshold": 0.8},
}
RECORDING = ("adadecode", "vllm-early-exit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--requests", type=int, default=8, help="of each workload")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="the least that it can do")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.systems, chosen.concurrency = ["adadecode"], [2]
        chosen.requests = chosen.repeats = 1
    asked = [
        one for w in WORKLOADS for one in requests_of(DEMO, w, chosen.requests, tokens=NEW_TOKENS)
    ]
    result: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    for name in chosen.systems:
        result[name] = {str(c): compared(name, asked, c, chosen) for c in chosen.concurrency}
        print(f"{name}: {json.dumps(result[name])}", flush=True)
    print(json.dumps(result))


def compared(
    name: str, asked: Sequence[Request], concurrency: int, chosen: argparse.Namespace
) -> dict[str, Any]:
    """Speed of a system over its own replay's, and whether the counts are equal."""
    options = {**SYSTEMS[name], "threads": chosen.threads}
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        recording = opened(name, options | ({"record": True} if name in RECORDING else {}))
        write_recorded(trace, recording, answers(recording, asked, concurrency), concurrency)
        recording.close()
        both = {
            "real": opened(name, options),
            "replayed": opened(name, {**options, "replay": str(trace)}),
        }
        counts: dict[str, list[dict[str, float]]] = {}
        cpu_s: dict[str, list[float]] = {kind: [] for kind in both}

        def speed(kind: str) -> float:
            began = time.process_time()
            done = answers(both[kind], asked, concurrency)
            cpu_s[kind].append(time.process_time() - began)
            counts[kind] = [_counts(generation) for generation in done]
            return tokens_per_second(done)

        calls = {kind: partial(speed, kind) for kind in both}
        found = in_turns(calls, chosen.repeats)
        for backend in both.values():
            backend.close()
    return {
        **spread(found["real"], found["replayed"]),
        "cpu": spread(cpu_s["replayed"][1:], cpu_s["real"][1:]),  # the first round does not count
        "same counts": counts["real"] == counts["replayed"],
    }


def _counts(generation: Generation) -> dict[str, float]:
    """Of layers, checks, drafts and steps; what is timed apart."""
    return {k: v for k, v in generation.telemetry.items() if not k.endswith("_us")}


def opened(name: str, options: Mapping[str, Any]) -> Backend:
    return open_backend(name, models.BUNDLED[DEMO], Model(DEMO, dtype="bfloat16"), options)


def write_recorded(
    path: Path, backend: Backend, done: Sequence[Generation], concurrency: int
) -> None:
    """The trace of a load."""
    load = Load("closed", concurrency=concurrency)
    trial = Trial(
        backend.info.name, {}, Model(DEMO), Workload("mixed"), load, len(done), NEW_TOKENS
    )
    record = TrialRecord("0" * 20, trial, {}, "ok", backend.info, generations=done)
    trace, _ = make_trace([record], {})
    write_trace(path, trace)


if __name__ == "__main__":
    main()
