"""Does a sweep see which loads a system keeps up with? Queues in virtual time, capacity known.

    python benchmarks/soundness/kept_up.py [--series 400] [--requests 60] [--quick]

For each system and each load as a share of its capacity: in how many of 100 series it is said not
to have kept up, with as many requests as a sweep asks for. M/D/c and M/M/c are c servers with equal
and with exponential times; the engine works on up to 32 requests at once, in steps that each of
them makes longer. "Asked": the load is that of the rate asked for, so that chance decides how many
come and how fast; "came": the load is that of the rate that came about, which is what a sweep
tells. The last line is JSON.
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from results.goodput.saturation import kept_up, probe_requests
from results.metrics.arrays import Floats

LOADS = (0.6, 0.9, 1.2, 1.4)
NS = 1e9
STEPS, SLOTS, SLOWER = 20, 32, 0.05
"""Of the engine: steps of an answer, places, and what each request adds to a step of 1."""

Serve = Callable[[np.random.Generator, Floats], list[float]]


@dataclass(frozen=True, slots=True)
class VirtualSystem:
    """When answers to requests that come at these times are whole."""

    serve: Serve
    capacity: float
    """Requests per second."""
    alone_s: float


def servers(count: int, *, equal: bool) -> VirtualSystem:
    """M/D/c or M/M/c, of a second an answer."""

    def serve(rng: np.random.Generator, arrived: Floats) -> list[float]:
        times = np.ones(len(arrived)) if equal else rng.exponential(1.0, len(arrived))
        free, left = [0.0] * count, []
        for moment, took in zip(arrived, times, strict=True):
            left.append(max(float(moment), heapq.heappop(free)) + float(took))
            heapq.heappush(free, left[-1])
        return left

    return VirtualSystem(serve, float(count), 1.0)


def engine() -> VirtualSystem:
    """Continuous batching: whoever is there takes part in the next step."""

    def serve(_: np.random.Generator, arrived: Floats) -> list[float]:
        waiting, now = deque(map(float, arrived)), 0.0
        under_way: list[int] = []
        left: list[float] = []
        while waiting or under_way:
            while waiting and waiting[0] <= now and len(under_way) < SLOTS:
                waiting.popleft()
                under_way.append(STEPS)
            if not under_way:
                now = waiting[0]
                continue
            now += 1 + SLOWER * len(under_way)
            left += [now] * under_way.count(1)
            under_way = [steps - 1 for steps in under_way if steps > 1]
        return left

    most = SLOTS / (STEPS * (1 + SLOWER * SLOTS))
    return VirtualSystem(serve, most, STEPS * (1 + SLOWER))


SYSTEMS = {
    "M/D/1": servers(1, equal=True),
    "M/D/4": servers(4, equal=True),
    "M/D/32": servers(32, equal=True),
    "M/M/1": servers(1, equal=False),
    "M/M/4": servers(4, equal=False),
    "engine": engine(),
}


def share_of_no(system: VirtualSystem, load: float, came: bool, series: int, least: int) -> float:
    """Of so many series, the share in which the system is said not to have kept up."""
    rng, rate = np.random.default_rng(0), load * system.capacity
    count, no = probe_requests(least, rate, system.alone_s), 0
    for _ in range(series):
        arrived = np.cumsum(rng.exponential(1 / rate, count))
        if came:
            arrived *= (count - 1) / rate / (arrived[-1] - arrived[0])
        left = np.array(system.serve(rng, arrived))
        no += not kept_up((NS * arrived).astype(np.int64), (NS * left).astype(np.int64))
    return no / series


def main() -> None:
    """Print the table and the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=400)
    parser.add_argument("--requests", type=int, default=60, help="of a load, at least")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    series = 4 if asked.quick else asked.series
    print("said not to have kept up, % of the series; load", *LOADS, sep="\t")
    found: dict[str, dict[str, list[float]]] = {}
    for name, system in SYSTEMS.items():
        for way in ("asked", "came"):
            row = [share_of_no(system, x, way == "came", series, asked.requests) for x in LOADS]
            found.setdefault(name, {})[way] = row
            print(f"{name}, {way}", *(f"{100 * share:.1f}" for share in row), sep="\t")
    print(json.dumps({"series": series, "loads": LOADS, "not_kept_up": found}))


if __name__ == "__main__":
    main()
