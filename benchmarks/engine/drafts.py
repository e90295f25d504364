"""Whether `auto` ever loses: methods that draft over plain decoding, in turns in one process.

    python -m benchmarks.engine.drafts [--methods eagle3] [--workloads gsm8k xsum]
                                       [--concurrency 1 8 16 32] [--requests 64] [--repeats 6]
                                       [--drafts auto] [--dtype bfloat16]

On the demo model. Plain decoding runs on the method's own executor, in the same places of memory
(elsewhere the same weights may be several percent slower), and both take turns after a few
requests, since a machine's pace may wander by more within a minute than is asked for. Ratios are
plain decoding's time over the method's: decode time per token (prompts apart; the geometric mean
over a turn's requests) and that of all tokens, the median over turns with its 95% interval; and the
drafts for each token of the answers. Texts are compared. The method `autoregressive` is plain
decoding beside itself: what this can tell apart. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from backends import open_backend
from backends.checkpoints import models
from backends.engine.decoder import Decoder
from backends.engine.drafters.first_layers import FirstLayers
from backends.own.autoregressive import Autoregressive
from backends.own.backend import EngineBackend
from benchmarks.support.turns import requests_of, seconds_per_token, tokens_per_second
from harness.core.nouns import Load, Model, Request
from harness.measure.load_loop import run_load

DEMO = "demo"
PLAIN, NEVER = "plain", "autoregressive"
FEW = 4
"""Requests of a turn, or two rounds of those in flight."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--methods", nargs="+", default=["eagle3"])
    parser.add_argument("--workloads", nargs="+", default=["gsm8k", "xsum"])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 8, 16, 32])
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--drafts", default="auto")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--quick", action="store_true", help="the least that it can do")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.workloads, chosen.concurrency, chosen.requests, chosen.repeats = ["gsm8k"], [2], 4, 1
    found = [row for method in chosen.methods for row in ladder(method, chosen)]
    print(json.dumps({"load_average": os.getloadavg()[0], "rows": found}))


def ladder(method: str, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Over plain decoding, by workload and requests in flight."""
    options: dict[str, Any] = {"max_num_seqs": max(chosen.concurrency)}
    name, model = method, Model(DEMO, dtype=chosen.dtype)
    if method != NEVER:
        drafts = chosen.drafts if chosen.drafts == "auto" else int(chosen.drafts)
        name, options = "speculative", {**options, "method": method, "drafts": drafts}
    drafting: Any = open_backend(name, models.resolve(model), model, options)
    executor = drafting._executor
    # an executor with an exit asks for a drafter at it: one that never drafts
    never = FirstLayers(executor, 0) if executor.exits else None
    plain = Autoregressive(Decoder(executor, never), executor, drafting.info, ())
    for workload in chosen.workloads:
        requests = requests_of(DEMO, workload, chosen.requests)
        for concurrency in chosen.concurrency:
            opened = {PLAIN: plain, method: drafting}
            row = {"workload": workload, "concurrency": concurrency, "method": method}
            row |= compared(opened, requests, concurrency, chosen.repeats)
            print(json.dumps(row), flush=True)
            yield row
    drafting.close()


def compared(
    opened: dict[str, EngineBackend], requests: list[Request], concurrency: int, repeats: int
) -> dict[str, Any]:
    """The one that drafts over plain decoding, at so many requests in flight."""
    (drafting,) = (name for name in opened if name != PLAIN)
    size = max(FEW, 2 * concurrency)
    pieces = [requests[start : start + size] for start in range(0, len(requests), size)]
    logs: dict[str, list[float]] = {"per_token": [], "of_all": []}
    drafted = 0
    is_same = True
    tokens = 0
    for repeat in range(-1, repeats):
        for backend in opened.values():
            backend.reset()
        for number, piece in enumerate(pieces):
            order = list(opened)[:: 1 if (repeat + number) % 2 else -1]
            load = Load("closed", concurrency=concurrency)
            done = {name: run_load(opened[name], piece, load) for name in order}
            if repeat < 0:
                continue
            texts = {name: [g.token_ids for g in of] for name, of in done.items()}
            tokens += sum(map(len, texts[PLAIN]))
            drafted += int(sum(g.telemetry.get("drafted", 0.0) for g in done[drafting]))
            is_same = is_same and texts[drafting] == texts[PLAIN]
            both = done[PLAIN], done[drafting]
            slow, fast = map(seconds_per_token, both)
            logs["per_token"].append(float(np.log(slow / fast)))
            slow, fast = map(tokens_per_second, both)
            logs["of_all"].append(float(np.log(fast / slow)))
    found = {what: interval(values) for what, values in logs.items()}
    return {**found, "drafted": round(drafted / tokens, 3), "same_text": is_same}


def interval(logs: list[float]) -> list[float]:
    """Median of ratios, and its 95% interval by the bootstrap."""
    draws = np.random.default_rng(0).choice(logs, (2000, len(logs)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return [round(float(np.exp(x)), 3) for x in (np.median(logs), low, high)]


if __name__ == "__main__":
    main()
