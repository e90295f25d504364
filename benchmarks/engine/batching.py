"""What exits save in a batch on one device: in lockstep, and with a queue before each segment.

    python benchmarks/engine/batching.py [--models demo 0.1b] [--in-flight 1 4 8 16] [--requests 2]
                                         [--workloads gsm8k ...] [--tokens 48] [--repeats 3]
                                         [--systems NAME ...] [--measure softmax] [--layers L ...]
                                         [--threads 1] [--quick]

Plain decoding on our engine, `adadecode` and `own-early-exit` in both batchings, all in one process
with all threads, and `tetris`, whose two stages have those threads between them (`--threads` is of
each process), take turns on the same prompts. The demo model decides by itself; a published shape
has random weights and replays what the demo model decided, answers of equal length. For each number
in flight: plain decoding's time over that of each, per token (prompts apart, the geometric mean
over the requests of a turn) and of all tokens, the median over turns with its quartiles; and the
share of layer passes that was left out. `--requests` counts those of each slot; `--measure` and
`--layers` are those of early exit. The demo model's texts are compared where they have to be plain
decoding's. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from backends import open_backend
from backends.checkpoints import models
from benchmarks.support.turns import (
    WORKLOADS,
    answers,
    counted,
    in_turns,
    mixed_requests,
    seconds_per_token,
    spread,
    tokens_per_second,
)
from harness.core.backend import Backend
from harness.core.nouns import Generation, Model, Request

PLAIN, LOSSLESS, DEMO = "autoregressive", "adadecode", "demo"
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    PLAIN: (PLAIN, {}),
    "adadecode lockstep": (LOSSLESS, {"batching": "lockstep"}),
    "adadecode ready": (LOSSLESS, {"batching": "ready"}),
    "own-early-exit lockstep": ("own-early-exit", {"batching": "lockstep"}),
    "own-early-exit ready": ("own-early-exit", {"batching": "ready"}),
    "tetris": ("tetris", {}),
}
LONGEST = 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=[DEMO, "0.1b"])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--in-flight", nargs="+", type=int, default=[1, 4, 8, 16])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--measure", default="softmax")
    parser.add_argument("--layers", nargs="+", type=int, help="exits; default: the backend's own")
    parser.add_argument("--quick", action="store_true", help="the least that it can do")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.models, chosen.in_flight, chosen.tokens, chosen.repeats = [DEMO], [2], 8, 1
    result: dict[str, Any] = {"load_average": os.getloadavg()[0]}
    print(json.dumps(result | {name: compared(chosen, name) for name in chosen.models}))


def compared(chosen: argparse.Namespace, name: str) -> dict[str, Any]:
    """Every number in flight on one model."""
    is_demo = name == DEMO
    model = Model(name, dtype="bfloat16", shape=not is_demo)
    common: dict[str, Any] = {"max_num_seqs": max(chosen.in_flight), "max_model_len": LONGEST}
    common |= {} if is_demo else {"replay": DEMO}
    common |= {} if chosen.threads is None else {"threads": chosen.threads}
    exits = {"measure": chosen.measure} | ({"layers": chosen.layers} if chosen.layers else {})
    opened = {}
    for label in dict.fromkeys([PLAIN, *chosen.systems]):
        backend, options = SYSTEMS[label]
        asked = {} if backend in (PLAIN, LOSSLESS) else exits
        folder = models.resolve(model)
        opened[label] = open_backend(backend, folder, model, {**common, **asked, **options})
    found: dict[str, Any] = {"options": {n: dict(b.info.options) for n, b in opened.items()}}
    for in_flight in chosen.in_flight:
        told = {"tokens": chosen.tokens, "seed": 7, "ignore_eos": not is_demo}
        count = in_flight * chosen.requests
        wanted = mixed_requests(DEMO, count, chosen.workloads, between="/test/", **told)
        found[str(in_flight)] = ratios(opened, wanted, in_flight, chosen.repeats, is_demo)
        print(f"{name}, {in_flight} in flight: {json.dumps(found[str(in_flight)])}", flush=True)
    for system in opened.values():
        system.close()
    return found


def ratios(
    opened: dict[str, Backend],
    wanted: Sequence[Request],
    in_flight: int,
    repeats: int,
    is_demo: bool,
) -> dict[str, Any]:
    """Each system over plain decoding."""
    last: dict[str, list[Generation]] = {}
    rates: dict[str, list[float]] = {label: [] for label in opened}

    def turn(label: str) -> float:
        last[label] = answers(opened[label], wanted, in_flight)
        rates[label].append(tokens_per_second(last[label]))
        return seconds_per_token(last[label])

    times = in_turns({label: partial(turn, label) for label in opened}, repeats)
    texts = {label: {g.request_id: g.token_ids for g in done} for label, done in last.items()}
    found: dict[str, Any] = {PLAIN: {"us_per_token": round(1e6 * statistics.median(times[PLAIN]))}}
    for label in list(opened)[1:]:
        counts = counted(last[label])
        found[label] = {
            **spread(times[PLAIN], times[label]),
            "tokens_per_s": spread(rates[label][1:], rates[PLAIN][1:]),
            "layers_left_out": round(1 - counts["layers_run"] / counts["layers_total"], 3),
        }
        if is_demo and SYSTEMS[label][0] == LOSSLESS:
            found[label]["same_text"] = texts[label] == texts[PLAIN]
    return found


if __name__ == "__main__":
    main()
