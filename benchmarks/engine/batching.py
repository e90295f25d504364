"""What early predictions save in a batch: in lockstep, and with a queue before each segment.

    python benchmarks/engine/batching.py [--model demo 0.1b] [--concurrency 1 2 4 8 16]
                                         [--requests 16] [--repeats 3] [--workload gsm8k]

Plain decoding on our engine, `adadecode` in both batchings, in turns on the same requests, in one
process. A model that is a shape replays the demo model's decisions. Ratios are of decode time per
token (prompts apart): the geometric mean over the requests of a turn, then the median over turns
with its quartiles. The demo model's texts are compared too. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from typing import Any

import numpy as np

from backends import open_backend
from backends.checkpoints import models
from benchmarks.support.turns import answers, in_turns, requests_of, spread
from harness.core.backend import Backend
from harness.core.nouns import Generation, Model, Request

SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("autoregressive", {}),
    "lockstep": ("adadecode", {"batching": "lockstep"}),
    "ready": ("adadecode", {"batching": "ready"}),
}
PLAIN = "plain"
BUNDLED = "demo"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", nargs="+", default=[BUNDLED, "0.1b"])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workload", default="gsm8k")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--quick", action="store_true", help="the least that it can do")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.model, chosen.concurrency, chosen.requests, chosen.repeats = [BUNDLED], [2], 4, 1
    result: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    for name in chosen.model:
        found = result[name] = one_model(name, chosen)
        print(f"{name}: {json.dumps(found)}", flush=True)
    print(json.dumps(result))


def one_model(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Ratios over plain decoding by requests in flight."""
    is_shape = name != BUNDLED
    model = Model(name, shape=is_shape)
    replay = {"replay": BUNDLED} if is_shape else {}
    threads = {} if chosen.threads is None else {"threads": chosen.threads}
    slots = {"max_num_seqs": max(chosen.concurrency)}
    folder = models.resolve(model)
    opened = {
        system: open_backend(backend, folder, model, {**options, **replay, **threads, **slots})
        for system, (backend, options) in SYSTEMS.items()
    }
    requests = requests_of(BUNDLED, chosen.workload, chosen.requests)
    found: dict[str, Any] = {"options": dict(opened["ready"].info.options)}
    for concurrency in chosen.concurrency:
        found[str(concurrency)] = _ratios(opened, requests, concurrency, chosen.repeats, is_shape)
        print(f"{name}, {concurrency} in flight: {json.dumps(found[str(concurrency)])}", flush=True)
    for backend in opened.values():
        backend.close()
    return found


def _ratios(
    opened: dict[str, Backend],
    requests: list[Request],
    concurrency: int,
    repeats: int,
    is_shape: bool,
) -> dict[str, Any]:
    texts: dict[str, Any] = {}

    def turn(system: str) -> float:
        done = answers(opened[system], requests, concurrency)
        texts[system] = {g.request_id: g.token_ids for g in done}
        return float(np.exp(np.mean([np.log(token_s(g)) for g in done])))

    times = in_turns({system: partial(turn, system) for system in opened}, repeats)
    found: dict[str, Any] = {
        system: spread(times[PLAIN], values) for system, values in times.items() if system != PLAIN
    }
    if not is_shape:
        found["same_text"] = all(text == texts[PLAIN] for text in texts.values())
    return found


def token_s(answer: Generation) -> float:
    """Decode time per token."""
    later = len(answer.token_ids) - answer.commit_tokens[0]
    return (answer.commit_ns[-1] - answer.commit_ns[0]) / 1e9 / later


if __name__ == "__main__":
    main()
