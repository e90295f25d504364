"""How often the speed-up's 95% interval holds the truth, by the product's own formula.

    python benchmarks/soundness/interval_coverage.py [--experiments 400] [--seeds 5] [--requests 64]

Each experiment draws a matrix of log ratios (repeats x requests) with a known mean and asks
`results.compare.stats.speedup_interval` for its interval. The spread has up to three parts, each
normal: of requests (the same in all repeats), of repeats (a machine that drifts between them: the
same for all requests) and of single measurements. `--seeds` independent batches of `--experiments`
each give the share that holds the truth, its binomial standard error, and the least and greatest
batch. The table is what docs/metrics.md has.
"""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

import numpy as np

from results.compare.stats import speedup_interval

TRUTH = math.log(1.5)
SPREAD = 0.2
"""Of log ratios: a factor of 1.22 either way. Coverage depends on the parts' ratios only."""
REPEATS = (1, 2, 3, 5, 10)


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


def cell(shares: list[float], experiments: int) -> str:
    """``83% ± 1 (81 to 84)``: all batches, binomial standard error, least and greatest batch."""
    mean = sum(shares) / len(shares)
    error = math.sqrt(mean * (1 - mean) / (experiments * len(shares)))
    digits = 1 if mean > 0.99 else 0
    low, high = (f"{100 * share:.{digits}f}" for share in (min(shares), max(shares)))
    return f"{mean:.{digits}%} ± {100 * error:.1f} ({low} to {high})"


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiments", type=int, default=400, help="of each batch")
    parser.add_argument("--seeds", type=int, default=5, help="batches")
    parser.add_argument("--requests", type=int, default=64)
    asked = parser.parse_args()
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
