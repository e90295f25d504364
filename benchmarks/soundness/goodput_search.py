"""Does `goodput` find the capacity of a server whose capacity is known? In virtual time.

    python benchmarks/soundness/goodput_search.py [--seeds 20] [--requests 400] [--share 0.99]
        [--tolerance 0.05] [--max-probes 14] [--quick]

Poisson arrivals at an M/D/1 queue (one server, all answers take as long) and at an M/M/4 queue
(four servers, exponential times). The capacity is the highest rate at which the wanted share of the
requests is answered within the objective; the distribution of the time in the system is Crommelin's
(1932; Erlang's formula), and that of M/M/c (Gross & Harris 1998, section 2.3). Probes are as long
as the command makes them, and are judged as it judges them. For each objective: by how much the
rates found are off, how many probes and requests they took, and how many intervals held the truth.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from harness.cli.goodput.probe_lengths import IdleSystem
from harness.core.nouns import Slo
from results.goodput.search import RateSearch
from results.goodput.steady import steady_probe
from results.metrics.arrays import Floats

SERVICE_S = 0.02
"""Over the number of servers: any queue here is saturated at one over it."""
SHARE = 0.99


def within(load: float, time: float) -> float:
    """The share of requests that an M/D/1 queue of this `load` answers within `time`, in service
    times: they wait at most `time` - 1 (Crommelin). The sum alternates: in exact numbers."""
    wait = Fraction(time).limit_denominator(1000) - 1
    if wait < 0:
        return 0.0
    rate, total = Fraction(load).limit_denominator(10**6), 0.0
    for n in range(math.floor(wait) + 1):
        x = float(rate * (n - wait))
        total += math.exp(-x) * x**n / math.factorial(n)
    return (1 - load) * total


def within_of_four(load: float, time: float) -> float:
    """As `within`, of an M/M/4 queue, in mean service times."""
    busy, spare = 4 * load, 3 - 4 * load
    waits = busy**4 / 24 / (1 - load)
    waits /= sum(busy**k / math.factorial(k) for k in range(4)) + waits  # Erlang's C
    longer = time if abs(spare) < 1e-9 else -math.expm1(-spare * time) / spare
    return 1 - math.exp(-time) * (1 + waits * longer)


def capacity(time: float, share: float, within: Callable[[float, float], float] = within) -> float:
    """The highest load with which `share` is answered within `time`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, time) >= share else (low, middle)
    return low


def sojourn(rate: float, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """When so many requests come to an empty M/D/1 queue, and their times in the system (Lindley's
    recursion). Seconds."""
    due = np.cumsum(rng.exponential(1 / rate, count))
    # waiting is the random walk of service - gap over its running minimum
    walk = SERVICE_S * np.arange(count) - due
    return due, walk - np.minimum.accumulate(walk) + SERVICE_S


def sojourn_of_four(rate: float, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """As `sojourn`, of an M/M/4 queue."""
    due = np.cumsum(rng.exponential(1 / rate, count))
    times, free = rng.exponential(4 * SERVICE_S, count), [0.0] * 4
    for n, at in enumerate(due.tolist()):
        ends = max(free[0], at) + float(times[n])
        heapq.heapreplace(free, ends)
        times[n] = ends - at
    return due, times


@dataclass(frozen=True, slots=True)
class KnownQueue:
    """A queue whose capacity has a formula."""

    name: str
    service_s: float
    objectives: tuple[float, ...]
    """In (mean) service times."""
    within: Callable[[float, float], float]
    sojourn: Callable[[float, int, np.random.Generator], tuple[Floats, Floats]]


QUEUES = (
    KnownQueue("M/D/1", SERVICE_S, (2.0, 4.0, 8.0), within, sojourn),
    KnownQueue("M/M/4", 4 * SERVICE_S, (6.0, 12.0), within_of_four, sojourn_of_four),
)


def search(queue: KnownQueue, objective: float, seed: int, args: argparse.Namespace) -> RateSearch:
    """A whole search."""
    rng, limit_s = np.random.default_rng(seed), objective * queue.service_s
    idle, slo = IdleSystem(queue.service_s, math.nan), Slo(e2e_ms=1e3 * limit_s)
    start = idle.first_rate(args.requests)
    found = RateSearch(args.share, start, args.tolerance, args.max_probes)
    while (rate := found.next_rate()) is not None:
        count = idle.enough_requests(rate, slo, args.requests)
        due_s, times_s = queue.sojourn(rate, count, rng)
        found.add(steady_probe(rate, due_s, times_s, times_s <= limit_s, times_s / limit_s))
    return found


def searches(queue: KnownQueue, objective: float, args: argparse.Namespace) -> dict[str, Any]:
    """What so many searches found."""
    truth = capacity(objective, args.share, queue.within) / SERVICE_S
    errors, halves, probes, inside, above = [], [], [], 0, 0
    for seed in range(args.seeds):
        done = search(queue, objective, seed, args)
        probes.append(len(done.probes))
        if (found := done.found()) is None:
            continue
        errors.append(found.rate / truth - 1)
        halves.append((found.high - found.low) / 2 / truth)
        inside += found.low <= truth <= found.high
        above += truth < found.low
    return {
        "queue": queue.name,
        "objective_in_services": objective,
        "capacity_per_s": truth,
        "searches": args.seeds,
        "found": len(errors),
        "held_the_truth": inside,
        "too_high": above,
        "error": statistics.median(map(abs, errors or [math.nan])),
        "worst_error": max(map(abs, errors), default=math.nan),
        "half_width": statistics.median(halves or [math.nan]),
        "probes": statistics.mean(probes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--max-probes", type=int, default=14)
    parser.add_argument("--quick", action="store_true", help="the least that it can do")
    args = parser.parse_args()
    if args.quick:
        args.seeds = 2
    results = []
    for queue in QUEUES:
        for objective in queue.objectives:
            one = searches(queue, objective, args)
            results.append(one)
            print(
                f"{queue.name}, objective {objective:g} service times: capacity "
                f"{one['capacity_per_s']:.2f}/s, error {one['error']:.1%} (worst "
                f"{one['worst_error']:.1%}), half width {one['half_width']:.1%}, "
                f"{one['probes']:.1f} probes, interval held the truth in "
                f"{one['held_the_truth']} of {one['searches']} ({one['too_high']} too high)",
                flush=True,
            )
    held, every = (sum(one[name] for one in results) for name in ("held_the_truth", "searches"))
    print(f"in all {held} of {every}")
    print(json.dumps([{k: None if v != v else v for k, v in one.items()} for one in results]))


if __name__ == "__main__":
    main()
