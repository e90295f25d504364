"""Early exit by sequence over plain decoding on our engine, with requests in flight.

    python benchmarks/engine/early_exits.py [--models demo 0.1b] [--in-flight 1 8 16] [--tokens 48]
                                            [--requests 2] [--repeats 3] [--measure softmax]
                                            [--layers L ...] [--threads 1]

Four systems take turns on the same prompts: `autoregressive`, `own-early-exit` in lockstep and by
ready rows, all in one process with all threads, and `tetris`, whose two stages have those threads
between them (`--threads` is of each process). The demo model decides by itself; a published shape
has random weights and replays what the demo model decided, answers of equal length. For each number
in flight: time per token of plain decoding over that of each (medians of the repeats' ratios,
quartiles beside them), tokens per second likewise, and the share of layer passes that was left out.
`--requests` counts those of each slot. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from backends import open_backend
from backends.checkpoints import models
from benchmarks.support.turns import in_turns, mixed_requests
from harness.core.nouns import Generation, Load, Model, Request
from harness.measure.load_loop import run_load

SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "autoregressive": ("autoregressive", {}),
    "lockstep": ("own-early-exit", {"batching": "lockstep"}),
    "ready": ("own-early-exit", {"batching": "ready"}),
    "tetris": ("tetris", {}),
}
DEMO = "demo"
WORKLOADS = ("gsm8k", "xsum", "humaneval", "cnn_dailymail")
LONGEST = 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=[DEMO, "0.1b"])
    parser.add_argument("--in-flight", nargs="+", type=int, default=[1, 8, 16])
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--measure", default="softmax")
    parser.add_argument("--layers", nargs="+", type=int, help="exits; default: the backend's own")
    chosen = parser.parse_args()
    result = {name: compared(chosen, name) for name in chosen.models}
    print(json.dumps(result))


def compared(chosen: argparse.Namespace, name: str) -> dict[str, Any]:
    """Every number in flight on one model."""
    is_demo = name == DEMO
    model = Model(name, dtype="bfloat16", shape=not is_demo)
    systems = {}
    for label, (backend, options) in SYSTEMS.items():
        asked = {"measure": chosen.measure} | ({"layers": chosen.layers} if chosen.layers else {})
        common: dict[str, Any] = {
            "max_num_seqs": max(chosen.in_flight),
            "max_model_len": LONGEST,
            **({} if is_demo else {"replay": DEMO}),
            **({} if chosen.threads is None else {"threads": chosen.threads}),
            **(asked if backend != "autoregressive" else {}),
            **options,
        }
        systems[label] = open_backend(backend, models.resolve(model), model, common)
    found = {}
    for in_flight in chosen.in_flight:
        wanted = requests(chosen, in_flight * chosen.requests, ignore_eos=not is_demo)
        found[str(in_flight)] = rates(chosen, systems, wanted, in_flight)
        print(f"{name}, {in_flight} in flight: {json.dumps(found[str(in_flight)])}", flush=True)
    for system in systems.values():
        system.close()
    return found


def rates(
    chosen: argparse.Namespace, systems: dict[str, Any], wanted: Sequence[Request], in_flight: int
) -> dict[str, Any]:
    """Both early exits over plain decoding."""
    skipped: dict[str, float] = {}
    through: dict[str, list[float]] = {label: [] for label in systems}

    def turn(label: str) -> float:
        answers = run_load(systems[label], wanted, Load("closed", concurrency=in_flight))
        counts = [
            sum(g.telemetry.get(n, 0) for g in answers) for n in ("layers_run", "layers_total")
        ]
        skipped[label] = round(1 - counts[0] / counts[1], 3)
        first, last = (
            min(g.submitted_ns for g in answers), max(g.commit_ns[-1] for g in answers)
        )  # fmt: skip
        through[label].append(1e9 * sum(len(g.token_ids) for g in answers) / (last - first))
        return per_token(answers)

    times = in_turns({label: partial(turn, label) for label in systems}, chosen.repeats)
    result: dict[str, Any] = {
        "autoregressive": {"us_per_token": round(1e6 * statistics.median(times["autoregressive"]))}
    }
    for label in list(systems)[1:]:
        ratios = [a / b for a, b in zip(times["autoregressive"], times[label], strict=True)]
        tokens = [b / a for a, b in zip(through["autoregressive"], through[label], strict=True)]
        result[label] = {
            "speedup": round(statistics.median(ratios), 3),
            "from_to": [round(min(ratios), 3), round(max(ratios), 3)],
            "tokens_per_s": round(statistics.median(tokens[1:]), 3),
            "layers_left_out": skipped[label],
        }
    return result


def per_token(answers: Sequence[Generation]) -> float:
    """Seconds after the first token, over the tokens after it, of all answers together."""
    spent = sum(g.commit_ns[-1] - g.commit_ns[0] for g in answers) / 1e9
    return spent / sum(len(g.token_ids) - 1 for g in answers)


def requests(chosen: argparse.Namespace, count: int, *, ignore_eos: bool) -> list[Request]:
    """Prompts of all workloads in turn, as the sweep makes them."""
    told = {"tokens": chosen.tokens, "seed": 7, "between": "/test/", "ignore_eos": ignore_eos}
    return mixed_requests(DEMO, -(-count // len(WORKLOADS)), WORKLOADS, **told)[:count]


if __name__ == "__main__":
    main()
