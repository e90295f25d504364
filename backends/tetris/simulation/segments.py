"""Where a device that regroups in place is cut."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from backends.tetris.own_survival import near
from backends.tetris.pipeline.leaving import LeaveDecisions
from backends.tetris.pipeline.stage_times import StageTimes
from backends.tetris.simulation.layouts import in_place_ms

MOST_SEGMENTS = 4
"""That a device which regroups in place is given."""
MOST_CHOICES = 5_000
"""Of cuts that are all tried: three of 32 layers' ramps."""


def best_segments(
    times: StageTimes, kind: str, most: int, decisions: LeaveDecisions | None = None
) -> list[tuple[int, ...]]:
    """For 2 to `most` segments the cuts, at ramps, of the least work for each input at full
    batches, which is what a device that regroups in place can reach; fewer where no cut pays. With
    `decisions` who leaves is counted for ramps at these cuts alone, else by the profile."""
    if decisions is not None:
        return _segments_under(times, kind, most, decisions)
    profile = times.profile
    L, alive, ramps = profile.layers, profile.survival, profile.ramps_before(profile.layers)

    def work(first: int, end: int) -> float:
        return _segment_work(times, kind, first, end, alive[first])

    best: list[tuple[float, tuple[int, ...]]] = [(work(0, j), ()) for j in range(1, L + 1)]
    found: list[tuple[int, ...]] = []
    least = best[-1][0]
    for segments in range(2, min(most, L) + 1):
        best = [
            min(
                ((best[i - 1][0] + work(i, j), (*best[i - 1][1], i)) for i in ramps if i < j),
                default=(float("inf"), ()),
            )
            for j in range(1, L + 1)
        ]
        if len(best[-1][1]) < segments - 1 or best[-1][0] >= least:
            break
        least = best[-1][0]
        found.append(best[-1][1])
    return found


def _segment_work(times: StageTimes, kind: str, first: int, end: int, alive: float) -> float:
    whole = in_place_ms(times, kind, first, end, times.profile.batch)
    gone = (1 - alive) * times.profile.batch
    return alive * whole + times.fill_ms(kind, first, end, gone)


def _segments_under(
    times: StageTimes, kind: str, most: int, decisions: LeaveDecisions
) -> list[tuple[int, ...]]:
    """All choices of cuts are tried where they are few, else those of one segment fewer and one cut
    more, and from there on single cuts are moved."""
    L = times.profile.layers
    ramps = times.profile.ramps_before(L)

    leaves = decisions.by_ramp()

    @cache
    def alive(cuts: tuple[int, ...]) -> float:
        gone = np.logical_or.reduce([leaves[cut - 1] for cut in cuts])
        return 1 - np.count_nonzero(gone) / len(decisions)

    def work(cuts: tuple[int, ...]) -> float:
        spans = enumerate(itertools.pairwise((0, *cuts, L)))
        return sum(
            _segment_work(times, kind, first, end, alive(cuts[:place]))
            for place, (first, end) in spans
        )

    found, best = list[tuple[int, ...]](), tuple[int, ...]()
    for number in range(1, min(most, len(ramps) + 1)):
        if math.comb(len(ramps), number) <= MOST_CHOICES:
            chosen = min(itertools.combinations(ramps, number), key=work)
        else:
            chosen = min((one for one in near(best, ramps) if len(one) == number), key=work)
            chosen = _moved(chosen, ramps, work)
        if work(chosen) >= work(best):
            break
        best = chosen
        found.append(best)
    return found


def _moved(
    cuts: tuple[int, ...], ramps: Sequence[int], work: Callable[[tuple[int, ...]], float]
) -> tuple[int, ...]:
    """Cuts that no move of a single one makes better."""
    while True:
        moves = (one for one in near(cuts, ramps) if len(one) == len(cuts))
        better = min(moves, key=work, default=cuts)
        if work(better) >= work(cuts):
            return cuts
        cuts = better
