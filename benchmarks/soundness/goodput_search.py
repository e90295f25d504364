"""Does `goodput` find the capacity of a server whose capacity is known? In virtual time.

    python benchmarks/soundness/goodput_search.py [--seeds 20] [--requests 4000] [--quick]

An M/D/1 queue: Poisson arrivals, one server, the same service time for all. Its capacity is the
highest rate at which the wanted share of the requests is answered within the objective; the
distribution of the time in the system is Crommelin's (1932; Erlang's formula). For each objective
and seed: what the search found, its error, its interval and its number of probes. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from fractions import Fraction

import numpy as np

from results.goodput.search import Probe, RateSearch
from results.goodput.steady import warm_up
from results.metrics.arrays import Flags, Floats

SERVICE_S = 0.02
OBJECTIVES = (2.0, 4.0, 8.0)
"""In service times."""
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


def capacity(time: float, share: float) -> float:
    """The highest load with which `share` is answered within `time`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, time) >= share else (low, middle)
    return low


def sojourn(rate: float, count: int, rng: np.random.Generator) -> tuple[Floats, float]:
    """The times in the system of so many requests from an empty one, and the rate that came about
    (Lindley's recursion)."""
    gaps = rng.exponential(1 / rate, count - 1)
    # waiting is the random walk of service - gap over its running minimum
    walk = np.concatenate(([0.0], np.cumsum(SERVICE_S - gaps)))
    return walk - np.minimum.accumulate(walk) + SERVICE_S, (count - 1) / float(gaps.sum())


def probed(rate: float, count: int, limit_s: float, rng: np.random.Generator) -> Probe:
    """One probe, its warm-up left out."""
    times, came_about = sojourn(rate, count, rng)
    met: Flags = times <= limit_s
    return Probe(rate, came_about, met[warm_up(times) :])


def search(objective: float, seed: int, requests: int) -> RateSearch:
    """A whole search."""
    rng = np.random.default_rng(seed)
    found = RateSearch(SHARE, start=0.5 / SERVICE_S)
    while (rate := found.next_rate()) is not None:
        found.add(probed(rate, requests, objective * SERVICE_S, rng))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--quick", action="store_true", help="the least that it can do")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.seeds, chosen.requests = 2, 1000
    result = {}
    for objective in OBJECTIVES:
        truth = capacity(objective, SHARE) / SERVICE_S
        errors, probes, inside = [], [], 0
        for seed in range(chosen.seeds):
            done = search(objective, seed, chosen.requests)
            found = done.found()
            assert found is not None
            errors.append(found.rate / truth - 1)
            probes.append(len(done.probes))
            inside += found.low <= truth <= found.high
        worst = max(map(abs, errors))
        result[f"{objective:g} service times"] = {
            "capacity_per_s": truth, "worst_error": worst, "most_probes": max(probes),
            "inside": inside / chosen.seeds,
        }  # fmt: skip
        print(
            f"objective {objective:g} service times: capacity {truth:.2f}/s, error "
            f"{statistics.median(map(abs, errors)):.1%} (worst {worst:.1%}), probes "
            f"{statistics.median(probes):g} (most {max(probes)}), interval held the truth in "
            f"{inside} of {chosen.seeds}",
            flush=True,
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
