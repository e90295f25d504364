"""How often the speed-up's 95% interval holds the truth, by the product's own formula.

    python benchmarks/soundness/interval_coverage.py [--experiments 400] [--seeds 5] [--requests 64]

Each experiment draws a matrix of log ratios (repeats x requests) with a known mean and asks
`results.compare.stats.speedup_interval` for its interval. The spread has up to three parts, each
normal: of requests (the same in all repeats), of repeats (a machine that drifts between them: the
same for all requests) and of single measurements. `--seeds` independent batches of `--experiments`
each give the share that holds the truth, its binomial standard error, and the least and greatest
batch. The table is what docs/metrics.md has.

`--queue` asks for the intervals of "first token" and "whole answer" in an open load
(`results.compare.rivals`): requests wait for one server, which the second system keeps busy for 15%
less time, over four repeats; `--requests` and the load vary: a draw of arrivals in each repeat
(`redraw`; `workloads.arrivals.of_trial`) beside one for all of them. "Apart" is the share in which
the intervals of two equal systems leave out 1.
"""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

import numpy as np

from harness.core.nouns import Load
from results.compare.intervals.several import pooled_ratio
from results.compare.rivals import RequestTimes, rival_effects
from results.compare.stats import speedup_interval
from results.metrics.arrays import Floats
from workloads.arrivals import arrival_times

TRUTH = math.log(1.5)
SPREAD = 0.2
"""Of log ratios: a factor of 1.22 either way. Coverage depends on the parts' ratios only."""
REPEATS = (1, 2, 3, 5, 10)
UTILISATIONS, QUEUED_REPEATS = (0.5, 0.8, 0.95), 4
FIRST, QUICKER, DRIFT = 0.2, 0.85, 0.01


class Parts(NamedTuple):
    """Standard deviations in units of `SPREAD`."""

    requests: float
    repeats: float
    noise: float


CASES = {
    "requests differ, the same way in each repeat": Parts(1, 0, 0),
    "independent noise": Parts(0, 0, 1),
    "a machine that drifts between repeats by a tenth of what requests differ": Parts(1, 0.1, 0),
    "a machine that drifts between repeats as much as requests differ": Parts(1, 1, 0),
    "equal parts: requests, drift and noise": Parts(1, 1, 1),
}


def coverage(parts: Parts, repeats: int, requests: int, experiments: int, seed: int) -> float:
    """Share of simulated experiments whose interval holds the truth."""
    chance = np.random.default_rng([seed, repeats, requests])
    held = 0
    for _ in range(experiments):
        logs = (
            TRUTH
            + SPREAD * parts.requests * chance.standard_normal((1, requests))
            + SPREAD * parts.repeats * chance.standard_normal((repeats, 1))
            + SPREAD * parts.noise * chance.standard_normal((repeats, requests))
        )
        found = speedup_interval(logs)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= math.exp(TRUTH) <= found.high
    return held / experiments


def answered(arrivals: Floats, service: Floats) -> tuple[Floats, Floats]:
    """(n,) seconds to the first token, a fifth into the service, and to the answer's end: one
    server, first come, first served."""
    free, started = 0.0, np.empty(len(arrivals))
    for place, arrival in enumerate(arrivals):
        started[place] = max(free, arrival)
        free = started[place] + service[place]
    waited = started - arrivals
    return waited + FIRST * service, waited + service


def queued(
    load: Load, requests: int, seed: int, *, anew: bool, pace: float = QUICKER
) -> list[tuple[float, float, float]]:
    """Ratio, low and high of the times to the first token and of whole answers, where the second
    system takes `pace` of the first one's time."""
    chance = np.random.default_rng([seed, requests])
    service = chance.gamma(4, 0.25, requests)
    names = [str(place) for place in range(requests)]
    sides: list[list[dict[int, RequestTimes]]] = [[{}, {}], [{}, {}]]
    for repeat in range(QUEUED_REPEATS):
        times = np.array(arrival_times(load, requests, (seed, repeat if anew else 0)))
        for side, times_longer in enumerate((1.0, pace)):
            drift = chance.normal(0, DRIFT) + chance.normal(0, 2 * DRIFT, requests)
            for kind, seconds in enumerate(answered(times, times_longer * service * np.exp(drift))):
                sides[kind][side][repeat] = RequestTimes(names, seconds)
    found = []
    for reference, ours in sides:
        effects = rival_effects(ours, reference, "prompts")
        assert effects is not None
        ratio = pooled_ratio([effects])
        assert ratio is not None
        found.append(ratio)
    return found


def print_queued(requests: int, experiments: int) -> None:
    """Print how often the intervals of an open load hold the truth, as Markdown."""
    print("| load | arrivals | first token | whole answer |")
    print("|---|---|---|---|")
    for utilisation in UTILISATIONS:
        load = Load("poisson", rate=utilisation)
        for anew in (True, False):
            found = [queued(load, requests, seed, anew=anew) for seed in range(experiments)]
            equal = [
                queued(load, requests, seed, anew=anew, pace=1.0) for seed in range(experiments)
            ]
            shown = []
            for kind, alike in zip(zip(*found, strict=True), zip(*equal, strict=True), strict=True):
                ratio, low, high = np.array(kind).T
                apart = float(np.mean([not a <= 1 <= b for _, a, b in alike]))
                truth = math.exp(np.log(ratio).mean())
                held = float(((low <= truth) & (truth <= high)).mean())
                width = float(np.median(high / low))
                told = f"of {truth:.2f}, width {width:.2f}; apart {apart:.1%}"
                shown.append(f"{cell([held], experiments)} {told}")
            how = "in each repeat" if anew else "one for all"
            print(f"| {utilisation:.0%} | {how} | {' | '.join(shown)} |", flush=True)


def cell(shares: list[float], experiments: int) -> str:
    """``83% ± 1 (81 to 84)``: all batches, binomial standard error, least and greatest batch."""
    mean = sum(shares) / len(shares)
    error = math.sqrt(mean * (1 - mean) / (experiments * len(shares)))
    digits = 1 if mean > 0.99 else 0
    low, high = (f"{100 * share:.{digits}f}" for share in (min(shares), max(shares)))
    batches = f" ({low} to {high})" if len(shares) > 1 else ""
    return f"{mean:.{digits}%} ± {100 * error:.1f}{batches}"


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiments", type=int, default=400, help="of each batch")
    parser.add_argument("--seeds", type=int, default=5, help="batches")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--queue", action="store_true", help="of an open load's latencies instead")
    asked = parser.parse_args()
    if asked.queue:
        print_queued(asked.requests, asked.experiments)
        return
    heads = [f"{n} repeat{'s' * (n > 1)}" for n in REPEATS]
    print(f"| where the spread comes from | {' | '.join(heads)} |")
    print("|---" * (len(REPEATS) + 1) + "|")
    for name, parts in CASES.items():
        shown = [
            cell(
                [
                    coverage(parts, repeats, asked.requests, asked.experiments, seed)
                    for seed in range(asked.seeds)
                ],
                asked.experiments,
            )
            for repeats in REPEATS
        ]
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
