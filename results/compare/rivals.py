"""Two backends against each other where neither need be the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from results.compare.intervals.several import CellEffects, cell_effects
from results.compare.pairing import data_rows
from results.compare.stats import by_request
from results.metrics.arrays import Floats


class RequestTimes(NamedTuple):
    """A time of each request of a trial: per output token, to the first one, or of the whole."""

    ids: Sequence[str]
    seconds: Floats
    """(R,), NaN where undefined."""


def rival_effects(
    ours: Mapping[int, RequestTimes], theirs: Mapping[int, RequestTimes], prompts: str
) -> CellEffects | None:
    """How much faster one cell is than another of the same workload and load.

    Args:
        ours: the trials of one cell by repeat.
        theirs: of the other.
        prompts: tells the workload (see `results.compare.intervals.several`).

    Returns:
        The log of their time / ours, paired on the same request in the same
        repeat, taken apart by requests and repeats; None without a pair.
    """
    ids: list[Sequence[str]] = []
    logs: list[Floats] = []
    repeats = sorted(ours.keys() & theirs.keys())
    for repeat in repeats:
        own, other = ours[repeat], theirs[repeat]
        known = dict(zip(other.ids, other.seconds.tolist(), strict=True))
        against = np.array([known.get(name, np.nan) for name in own.ids])
        usable = (own.seconds > 0) & (against > 0)
        found = np.full(len(own.ids), np.nan)
        found[usable] = np.log(against[usable] / own.seconds[usable])
        ids.append(own.ids)
        logs.append(found)
    if not logs:
        return None
    names, matrix = by_request(ids, logs)
    return cell_effects(matrix, repeats, prompts, data_rows(names))
