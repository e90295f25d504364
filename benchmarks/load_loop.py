"""What the load loop itself costs: how late it submits, and how many commits it gets through.

    python benchmarks/load_loop.py [--rate 500] [--seconds 10] [--commits 400000]

Submit lag: an open loop of constant and Poisson arrivals on the scripted backend. Commits: a
backend that does no work hands out one token per request and poll, and every commit goes through
submit, poll, stamp and the store. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from backends.scripted import ScriptedBackend
from harness.core.nouns import Load, Model, Request, Trial, TrialRecord, Workload
from harness.measure.checks import percentile
from harness.measure.load_loop import run_load
from results.store.folder import Store

TOKENS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=500.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each open loop")
    parser.add_argument("--commits", type=int, default=400_000)
    options = parser.parse_args()
    result: dict[str, object] = {"load_average": os.getloadavg()[0]}
    draw = random.Random(0)
    count = round(options.rate * options.seconds)
    gaps = {
        "constant": [1 / options.rate] * (count - 1),
        "poisson": [draw.expovariate(options.rate) for _ in range(count - 1)],
    }
    for kind, between in gaps.items():
        result[f"submit_lag_{kind}"] = submit_lag(list(accumulate(between, initial=0.0)))
    result["commits"] = commits(options.commits)
    print(json.dumps(result))


def submit_lag(arrivals: Sequence[float]) -> dict[str, float]:
    """Percentiles in ms of submit - scheduled (the system's share included) and of the client's own
    lag, and the processor time the loop used per second."""
    requests = [Request(f"r{i}", (1,), TOKENS, arrival_s=a) for i, a in enumerate(arrivals)]
    backend = ScriptedBackend({"ttft_s": 0.02, "itl_s": 0.005})
    cpu, wall = time.process_time(), time.monotonic()
    found = run_load(backend, requests, Load("constant", rate=1.0))
    busy = (time.process_time() - cpu) / (time.monotonic() - wall)
    late = [(g.submitted_ns - g.scheduled_ns) / 1e6 for g in found]
    own = [g.client_lag_ns / 1e6 for g in found]
    result = {
        **{f"lag_ms_p{share:g}": percentile(late, share / 100) for share in (50, 99, 99.9)},
        "client_lag_ms_p99": percentile(own, 0.99),
        "cores_used": busy,
    }
    print("submit lag:", "  ".join(f"{name} {value:.3f}" for name, value in result.items()))
    return result


def commits(count: int) -> dict[str, float]:
    """Commits per second through submit, poll, stamp, and with the store as well."""
    load = Load("closed", concurrency=64)
    requests = [Request(f"r{i}", (1,), TOKENS) for i in range(count // TOKENS)]
    trial = Trial(
        "scripted",
        {"zero_work": True},
        Model("none"),
        Workload("none"),
        load,
        len(requests),
        TOKENS,
    )
    begin = time.monotonic()
    generations = run_load(ScriptedBackend(trial.options), requests, load)
    looped = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        Store(Path(folder)).write(TrialRecord("0" * 20, trial, {}, "ok", generations=generations))
        stored = time.monotonic()
    done = sum(len(g.commit_ns) for g in generations)
    result = {
        "submit_poll_stamp_per_s": done / (looped - begin),
        "with_store_per_s": done / (stored - begin),
    }
    print("commits:", "  ".join(f"{name} {value:,.0f}" for name, value in result.items()))
    return result


if __name__ == "__main__":
    main()
