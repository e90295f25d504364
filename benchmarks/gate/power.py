"""What the gate answers, by how much is gated: simulated comparisons at the default margins.

    python -m benchmarks.gate.power [--comparisons 200] [--requests 20] [--quick]

A machine whose speed wanders from repeat to repeat by so much (independently for each trial, which
is the best case of paired repeats), times of requests that differ by 30% and are measured within
2%. "Equal" is a version beside itself; "slower" is 10% more time a token, in one cell or in all.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from results.compare.gate.comparison import compare_runs
from results.compare.gate.identity import FIELDS
from results.compare.gate.margins import DEFAULTS
from results.compare.gate.reduced import CellName, ReducedRun, ReducedTrial

IDENTITY = dict.fromkeys(FIELDS)
SLOWER = 0.10
SHAPES = ((4, 4), (4, 8), (8, 8), (8, 16), (24, 4), (84, 4))
"""Cells and repeats; the last one is experiments/demo.yaml."""
WANDERS = (0.005, 0.01, 0.02)


def a_run(
    chance: np.random.Generator, cells: int, repeats: int, requests: int, wander: float
) -> Iterator[ReducedTrial]:
    """Trials of a version whose answers never change, with time per token and to the first one."""
    own = np.random.default_rng(7).normal(0, 0.3, requests)
    for cell, repeat in itertools.product(range(cells), range(repeats)):
        noise = chance.normal(0, 0.02, (2, requests)) + chance.normal(0, wander, (2, 1))
        tpot, ttft = np.exp(own + noise)
        yield ReducedTrial(
            cell=CellName("demo", "gsm8k", "closed c=8", f"backend{cell}", "{}"),
            repeat=repeat, status="ok", doubt="", lossless=True, greedy=True, replayed=False,
            broken_promise=None, fingerprint="", identity=IDENTITY,
            ids=[f"r{n}" for n in range(requests)], answers=np.arange(requests) + 10,
            values={"tpot_s": 0.01 * tpot, "ttft_s": 0.1 * ttft, "exact_match": np.ones(requests)},
            numbers={},
        )  # fmt: skip


def slowed(trials: list[ReducedTrial], cells: int) -> list[ReducedTrial]:
    """The same with the tokens of the first `cells` cells slower."""
    names = {f"backend{number}" for number in range(cells)}
    for trial in trials:
        if trial.cell.backend in names:
            trial.values["tpot_s"][:] *= 1 + SLOWER
    return trials


def verdicts(
    cells: int, repeats: int, wander: float, worse: int, comparisons: int, requests: int
) -> Counter[str]:
    """How many of the comparisons end how, where so many cells are slower."""
    found: Counter[str] = Counter()
    for seed in range(comparisons):
        chance = np.random.default_rng([11, seed])
        sides = [list(a_run(chance, cells, repeats, requests, wander)) for _ in range(2)]
        base, new = ReducedRun("BASE", sides[0]), ReducedRun("NEW", slowed(sides[1], worse))
        found[compare_runs(base, new, DEFAULTS).verdict] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="The smallest shape, four times.")
    arguments = parser.parse_args()
    few = 1 if arguments.quick else None
    shapes, wanders = SHAPES[:few], WANDERS[:few]
    count = 4 if arguments.quick else arguments.comparisons
    print("cells repeats wander | equal: pass  fail | one slower: fail | all slower: fail")
    for (cells, repeats), wander in itertools.product(shapes, wanders):
        rates = [
            {name: n / count for name, n in found.items()}
            for worse in (0, 1, cells)
            for found in [verdicts(cells, repeats, wander, worse, count, arguments.requests)]
        ]
        equal, one, every = ([rate.get(v, 0.0) for v in ("pass", "fail")] for rate in rates)
        print(
            f"{cells:5} {repeats:7} {wander:6.1%} | {equal[0]:11.2f} {equal[1]:5.2f} | "
            f"{one[1]:16.2f} | {every[1]:16.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
