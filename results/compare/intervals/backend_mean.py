"""Scores and answers of a backend over all of its cells.

One flipped answer of a cell's 256 is 0.4%, with an error as large: a margin of 1% is shown by no
such cell, though a dozen of them show it together. What a backend's cells differ by is averaged
over them, weighted by their answers; the part of the error that lies in the requests is taken to be
the same in all cells of a workload, which ask the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from results.compare.intervals.crossed import CrossedMean


def backend_mean(cells: Sequence[tuple[str, CrossedMean]]) -> CrossedMean | None:
    """The mean over cells of one backend, each with the name of its workload; None for fewer than
    two, or where a cell's error is not known."""
    if len(cells) < 2 or any(math.isnan(one.variance) for _, one in cells):
        return None
    whole = sum(one.repeats * one.units for _, one in cells)
    mean = variance = terms = lasting = 0.0
    by_workload: dict[str, list[tuple[float, CrossedMean]]] = {}
    for workload, one in cells:
        share = one.repeats * one.units / whole
        mean += share * one.mean
        by_workload.setdefault(workload, []).append((share, one))
    for found in by_workload.values():
        own = sum(share * math.sqrt(one.of_units) for share, one in found) ** 2
        rest = sum(share**2 * (one.variance - one.of_units) for share, one in found)
        part, lasting = own + rest, lasting + own
        variance += part
        terms += part**2 / min(max(one.df, 1.0) for _, one in found)
    df = variance**2 / terms if terms else 1.0
    repeats = min(one.repeats for _, one in cells)
    return CrossedMean(mean, variance, df, repeats, sum(one.units for _, one in cells), lasting)
