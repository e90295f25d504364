"""How often a comparison of a system with itself shows a difference, on a machine that wanders.

    python benchmarks/soundness/wandering.py [--comparisons 2000] [--request-s 0.25]
                                             [--systems 2] [--cells 1] [--rival 1]

24 requests, trials in the order of a sweep (of two systems A B, B A, A B), machine speed wandering
by 5% with time constants from 0.2 to 60 s (`benchmarks/support/intervals/wander.py`). System
`rival` is compared with system 0. The nominal share is 5% for each of: the product's interval
(`results.compare.intervals.crossed`), the same with independent repeats supposed, and a t interval
over the repeats' means alone. In brackets the median width, in percent.
With `--pooled` the same for the mean over all cells, of which each four share their requests
(`results.compare.intervals.several`), and beside it the mean of the cells' own ends.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping
from unittest import mock

import numpy as np

from benchmarks.support.intervals.wander import REPEATS, TIME_CONSTANTS_S, Floats, WanderingMachine
from results.compare.intervals import crossed
from results.compare.intervals.several import cell_effects, over_cells
from results.compare.intervals.student import t_quantile

Bounds = Callable[[Floats], tuple[float, float]]


def satterthwaite(logs: Floats) -> tuple[float, float]:
    """The product's interval."""
    found = crossed.crossed_mean(logs)
    bounds = found.bounds() if found is not None else None
    assert bounds is not None
    return bounds


def independent(logs: Floats) -> tuple[float, float]:
    """The same without room for what neighbouring repeats share."""
    with mock.patch.object(crossed, "NEIGHBOURS", 0.0):
        return satterthwaite(logs)


def over_repeats(logs: Floats) -> tuple[float, float]:
    """A t interval over the means of the repeats."""
    means = logs.mean(axis=1)
    half = t_quantile(0.025, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means))
    return float(means.mean() - half), float(means.mean() + half)


INTERVALS: Mapping[str, Bounds] = {
    "crossed": satterthwaite,
    "independent": independent,
    "repeats' means": over_repeats,
}


def several_cells(logs: Floats) -> tuple[float, float]:
    """The product's interval over (cells, repeats, requests)."""
    effects = [
        cell_effects(cell, range(len(cell)), f"prompts {place % 4}")
        for place, cell in enumerate(logs)
    ]
    found = over_cells([one for one in effects if one is not None])
    bounds = found.bounds() if found is not None else None
    assert bounds is not None
    return bounds


def mean_of_ends(logs: Floats) -> tuple[float, float]:
    """The mean of the cells' own."""
    low, high = np.mean([satterthwaite(cell) for cell in logs], axis=0)
    return float(low), float(high)


POOLED: Mapping[str, Bounds] = {"several cells": several_cells, "mean of ends": mean_of_ends}


def told_apart(comparisons: Floats, interval: Bounds) -> tuple[float, float]:
    """Share of comparisons whose interval leaves 0 out, and the intervals' median width."""
    bounds = np.array([interval(logs) for logs in comparisons])
    apart = (bounds[:, 0] > 0) | (bounds[:, 1] < 0)
    return float(apart.mean()), float(np.median(bounds[:, 1] - bounds[:, 0]))


def main() -> None:
    """Print the grid as Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=2000, help="of each cell")
    parser.add_argument("--request-s", type=float, default=0.25)
    parser.add_argument("--systems", type=int, default=2)
    parser.add_argument("--cells", type=int, default=1, help="between two repeats of one")
    parser.add_argument("--rival", type=int, default=1, help="the system compared with the first")
    parser.add_argument("--pooled", action="store_true", help="over all cells")
    asked = parser.parse_args()
    sweep = {"systems": asked.systems, "cells": asked.cells, "rival": asked.rival}
    machine = WanderingMachine(request_s=asked.request_s)
    intervals = POOLED if asked.pooled else INTERVALS
    print(f"| repeats | time constant | {' | '.join(intervals)} |")
    print("|---" * (len(intervals) + 2) + "|")
    for repeats in REPEATS:
        for time_constant_s in TIME_CONSTANTS_S:
            rest = repeats, time_constant_s, asked.comparisons, 1
            if asked.pooled:
                found = machine.cells(*rest, (asked.systems, asked.cells, asked.rival))
            else:
                found = machine.comparisons(*rest, **sweep)
            shown = [told_apart(found, interval) for interval in intervals.values()]
            cells = " | ".join(f"{share:.1%} ({100 * width:.1f})" for share, width in shown)
            print(f"| {repeats} | {time_constant_s:g} s | {cells} |", flush=True)


if __name__ == "__main__":
    main()
