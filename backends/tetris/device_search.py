"""The dynamic programme over layers and numbers of devices, for one given cycle time.

TETRIS §3.2, figure 5, corrected: with the cycle time given, a stage takes the fewest devices that
keep up with it, and what is minimised is a plain sum, the latency. `docs/tetris.md` says why.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from backends.tetris.stage_costs import SAME, Counts, Floats, StageCosts

MOST_LINKS = 5_000_000


def least_latency(costs: StageCosts, counts: Counts, added: Floats) -> Floats:
    """Least latency of layers 0..j-1 that uses exactly the given numbers of devices: (L + 1,
    *costs.shape) float64 milliseconds, infinite where nothing does.

    Args:
        counts: devices of each stage, as `StageCosts.needed` gives them.
        added: what each stage adds to the latency, as `UsefulStages.added` gives it.
    """
    L, shape = costs.layers, costs.shape
    found = np.full((L + 1, *shape), np.inf)
    found.reshape(L + 1, -1)[0, 0] = 0.0
    ends = np.where(added < np.inf, np.arange(L + 1), 0).max(axis=2)
    moved = [_Moved(shape, axis) for axis in range(len(shape))]
    for begin, kind in np.argwhere(ends.T):
        end = ends[kind, begin] + 1
        more = added[kind, begin, begin + 1 : end]
        used = np.minimum(counts[kind, begin, begin + 1 : end], costs.devices[kind])
        after = moved[kind].by(used, found[begin])
        after += more.reshape(-1, *(1,) * len(shape))
        np.minimum(found[begin + 1 : end], after, out=found[begin + 1 : end])
    return found


def stages_of(
    costs: StageCosts, counts: Counts, waits: Floats, found: Floats, used: tuple[int, ...]
) -> list[tuple[int, int, int, int]]:
    """The stages (first layer, end, kind, devices) whose latency `found[L][used]` is."""
    stages, end = [], costs.layers
    while end:
        begin, kind = next(_last_stages(costs, counts, waits, found, end, used))
        many = int(counts[kind, begin, end])
        stages.append((begin, end, kind, many))
        used = _less(used, kind, many)
        end = begin
    return stages[::-1]


def _last_stages(
    costs: StageCosts,
    counts: Counts,
    waits: Floats,
    found: Floats,
    end: int,
    used: tuple[int, ...],
) -> Iterator[tuple[int, int]]:
    for begin in range(end):
        for kind in range(len(used)):
            many = int(counts[kind, begin, end])
            if many <= used[kind]:
                before = found[(begin, *_less(used, kind, many))]
                more = costs.service[kind, begin, end] + waits[begin]
                if before + more == found[(end, *used)] < np.inf:
                    yield begin, kind


def _less(used: tuple[int, ...], kind: int, many: int) -> tuple[int, ...]:
    return (*used[:kind], used[kind] - many, *used[kind + 1 :])


class _Moved:
    """An array, moved along one axis by any number of places, infinity coming in."""

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        most = shape[axis] - 1
        wide = (*shape[:axis], 2 * most + 1, *shape[axis + 1 :])
        padded = np.full(wide, np.inf)
        self._middle = padded[(slice(None),) * axis + (slice(most, None),)]
        views = np.moveaxis(sliding_window_view(padded, most + 1, axis=axis), axis, 0)
        self._views = np.moveaxis(views[::-1], -1, axis + 1)

    def by(self, places: Counts, array: Floats) -> Floats:
        self._middle[...] = array
        return np.asarray(self._views[places])


class DeviceBound:
    """Whether devices could keep up with a cycle time at all, whatever the latency.

    A stage is taken to cost no more than the cheapest possible stage that contains it. So layers
    once reached are never in the way, and the furthest one reached by a choice of devices is
    enough to know. This is necessary for a plan; it need not be sufficient.
    """

    def __init__(self, costs: StageCosts, affordable: NDArray[np.bool_]) -> None:
        self._costs = costs
        self._affordable = affordable.reshape(-1)
        self._work = _of_containing(costs.work)
        self._kind = np.repeat(np.arange(len(costs.devices)), costs.devices)
        self._many = np.concatenate([np.arange(1, count + 1) for count in costs.devices])
        self._levels = self._links() if len(self._affordable) * len(self._many) < MOST_LINKS else []

    def _links(self) -> list[tuple[Counts, Counts]]:
        """The choices of n devices for n = 1, 2, ... and each one's choices without one stage: flat
        places (choices,) and (choices, M); beyond the end where a kind has too few."""
        shape = self._costs.shape
        places = np.indices(shape).reshape(len(shape), -1)
        strides = np.asarray([np.prod(shape[axis + 1 :], dtype=int) for axis in range(len(shape))])
        total = places.sum(axis=0)
        levels = []
        for count in range(1, int(total.max()) + 1):
            here = np.flatnonzero(total == count)
            before = here[:, None] - self._many * strides[self._kind]
            before[self._many > places[self._kind][:, here].T] = places.shape[1]
            levels.append((here, before))
        return levels

    def suffice(self, cycle_ms: float) -> bool:
        """False if no affordable choice of devices has a plan of this cycle time."""
        if not self._levels:
            return True
        L = self._costs.layers
        shut = self._costs.shut(cycle_ms)
        work = self._work
        if shut.any():
            possible = np.where(shut[:, None] | np.append(shut, False), np.inf, self._costs.work)
            work = _of_containing(possible)
        fits = work[self._kind] <= (self._many * (cycle_ms / (1 - SAME)))[:, None, None]
        fits &= ~np.tri(L, L + 1, dtype=bool)
        end = np.zeros((len(self._many), L + 2), dtype=np.int64)
        end[:, :L] = fits.sum(axis=2) + np.arange(L)
        end[:, L] = L
        reached = np.zeros(len(self._affordable) + 1, dtype=np.int64)
        reached[-1] = L + 1
        row = np.arange(len(self._many))
        for here, before in self._levels:
            reached[here] = end[row, reached[before]].max(axis=1)
        return bool((reached[:-1][self._affordable] == L).any())

    def least(self, cycles: Floats) -> int:
        """Place of the first cycle time that suffices; as many as there are if none does."""
        low, high = 0, len(cycles)
        while low < high:
            middle = (low + high) // 2
            if self.suffice(float(cycles[middle])):
                high = middle
            else:
                low = middle + 1
        return low


def _of_containing(work: Floats) -> Floats:
    """Of each stage the least work of those that contain it, (K, L, L + 1)."""
    begun = np.minimum.accumulate(work, axis=1)
    return np.asarray(np.minimum.accumulate(begun[:, :, ::-1], axis=2)[:, :, ::-1])
