"""Two backends against each other where neither need be the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from results.compare.pairing import data_rows
from results.compare.stats import Interval, by_request, speedup_interval
from results.metrics.arrays import Floats


class DecodeTimes(NamedTuple):
    """How fast a trial's requests were decoded."""

    ids: Sequence[str]
    seconds: Floats
    """(R,) time per output token, NaN where undefined."""


def rival_speedup(
    ours: Mapping[int, DecodeTimes], theirs: Mapping[int, DecodeTimes]
) -> Interval | None:
    """How much faster one cell decodes than another of the same workload and load.

    Args:
        ours: the trials of one cell by repeat.
        theirs: of the other.

    Returns:
        The geometric mean of their time per output token / ours, paired on the same request in the
        same repeat, with its 95% interval on crossed components of requests and repeats; None
        without a pair.
    """
    ids: list[Sequence[str]] = []
    logs: list[Floats] = []
    for repeat in sorted(ours.keys() & theirs.keys()):
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
    return speedup_interval(matrix, data_rows(names))
