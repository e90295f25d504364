"""How long the simulator takes for a million requests on 10,000 devices; the aim is a minute.

    python benchmarks/tetris/at_scale.py [--requests 1000000] [--devices 10000] [--quick]

BERT-Base at batch 8 on V100 of a stated roofline (`experiments/tetris/models`), as copies of the
paper's 16 side by side and as one cluster. An open loop offers `LOAD` of what plain decoding would
give; in it no system chooses a number of clients by pilots, only regrouping in place its cuts. CPU
time tells simulating apart from what else the machine did. Goodput contains the beginning and the
end of the run, which are much of it: a hundred requests a device.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from backends.tetris.pipeline.leaving import drawn
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.planner import plan
from backends.tetris.profile import Wanted, cluster_from
from backends.tetris.simulation.baselines import BASELINES
from backends.tetris.simulation.compare import SimulatedLoad, SystemRuns
from benchmarks.tetris.paper import PRICE, SLO_MS, model

BATCH, KIND, PAPER = 8, "V100", 16
LOAD = 0.9
AIM_S = 60
Found = TypeVar("Found")


def clocked(run: Callable[[], Found]) -> tuple[Found, float, float]:
    """What ran, its seconds by the clock and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = run()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def simulated(devices: int, copies: int, requests: int) -> None:
    """Every system on so many devices in equal parts, a line each, and their sum."""
    bert, here = model(BATCH), devices // copies
    cluster = cluster_from({"devices": {KIND: here}, "price": {KIND: PRICE[KIND]}}, "here", bert)
    rate = LOAD * here * BATCH * 1e3 / sum(bert.layer_ms[KIND])
    planned, *took = clocked(lambda: plan(bert, cluster, Wanted(SLO_MS, rate=rate)))
    told = f"{copies} x {here} devices" if copies > 1 else f"one cluster of {here} devices"
    print(f"\n{told}, {requests:,} requests, {len(planned.stages)} stages")
    print("                          s   CPU s  answers in time a second")
    print(_line("planning", took, planned.goodput_per_s * copies), flush=True)
    load, decisions = SimulatedLoad(rate * copies), drawn(bert.survival, requests, 0)
    runs = SystemRuns(StageTimes(bert), cluster.devices, decisions, load, SLO_MS, copies)
    jobs = {name: partial(runs.baseline, name) for name in BASELINES}
    for name, job in {"pipeline": partial(runs.piped, planned), **jobs}.items():
        found, *more = clocked(job)
        took = [sum(pair) for pair in zip(took, more, strict=True)]
        print(_line(name, more, found.goodput_per_s), flush=True)
    print(f"{_line('all', took)} {took[1] / AIM_S:.2f} of a minute's CPU time")


def _line(name: str, took: Sequence[float], per_s: float | None = None) -> str:
    wall, cpu = took
    return f"{name:20} {wall:6.1f}  {cpu:6.1f} {'' if per_s is None else f'{per_s:10,.6g}'}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the simulator.")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="64 devices, 4,000 requests")
    asked = parser.parse_args()
    if asked.quick:
        asked.devices, asked.requests = 64, 4_000
    print("simulation of a stated roofline, no model runs")
    simulated(asked.devices, asked.devices // PAPER, asked.requests)
    simulated(asked.devices, 1, asked.requests)


if __name__ == "__main__":
    main()
