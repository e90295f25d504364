"""Which stages can be part of a plan within a latency, told before the dynamic programme runs.

The programme has a place for each choice of numbers of devices, which is what it costs. Here
devices are bought instead: each kind has a price in milliseconds, so that the shortest way through
the layers is one of L steps. Its length less the price of all devices there are bounds every plan's
latency from below, whatever the prices (Lagrange), and so does the shortest way through a stage.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from backends.tetris.stage_costs import Counts, Floats, StageCosts

ROUNDED = 1e-9
"""Sums of prices are rounded; no stage is given up for less than this, relatively."""
STEPS = 3
FEW = 600_000
"""So many places of the programme are filled sooner than better prices are found."""


class UsefulStages:
    """What each stage adds to the latency, and infinity for those that no plan within it has. The
    prices of one question are where those of the next begin, which is mostly a like one."""

    def __init__(self, costs: StageCosts) -> None:
        self._costs = costs
        self._devices = np.asarray(costs.devices)
        self._choices = int(np.prod(costs.shape))
        self._price = np.zeros(len(self._devices))

    def added(self, counts: Counts, waits: Floats, most_ms: float) -> Floats:
        """(K, L, L + 1) milliseconds, infinite too where there are too few devices for a stage.

        Args:
            counts: devices of each stage, as `StageCosts.needed` gives them.
            waits: before each stage, as `StageCosts.waits` gives them.
            most_ms: the latency; infinite for all stages that lead on.
        """
        added = self._costs.service + waits[:, None]
        added[counts > self._devices[:, None, None]] = np.inf
        way = _Way(added)
        every = np.count_nonzero(added < np.inf)
        _leave_out(added, way, most_ms)
        left = np.count_nonzero(added < np.inf)
        # where time alone leaves nothing out, devices hardly do
        if left in (0, every) or left * self._choices < FEW:
            return added
        best_ms, price = -np.inf, self._price
        for _ in range(STEPS):
            way = _Way(added + price[:, None, None] * counts)
            bound_ms = way.length - float(price @ self._devices)
            if bound_ms > best_ms:
                best_ms, self._price, shortest = bound_ms, price, way
            over = way.used(counts) - self._devices
            over[(price == 0) & (over < 0)] = 0
            if bound_ms > most_ms or not over.any():
                break
            step = (most_ms - bound_ms) / float(over @ over)
            price = np.maximum(0, price + step * over)
        _leave_out(added, shortest, most_ms + float(self._price @ self._devices))
        return added


def _leave_out(added: Floats, way: _Way, most_ms: float) -> None:
    with np.errstate(over="ignore"):
        added[way.through() > most_ms * (1 + ROUNDED)] = np.inf
    added[:, ~np.isfinite(way.before[:-1])] = np.inf


class _Way:
    """The shortest way through all layers, for what each stage costs, (K, L, L + 1); how long it
    is to `before` each layer, (L + 1,)."""

    def __init__(self, costs: Floats) -> None:
        L = costs.shape[1]
        self._costs, self._kind = costs, costs.argmin(axis=0)
        self._least = costs.min(axis=0)
        self.before = np.full(L + 1, np.inf)
        self.before[0] = 0.0
        self._begin = np.zeros(L + 1, np.int64)
        into = np.ascontiguousarray(self._least.T)
        for end in range(1, L + 1):
            reached = self.before[:end] + into[end, :end]
            self._begin[end] = begin = reached.argmin()
            self.before[end] = reached[begin]

    @property
    def length(self) -> float:
        return float(self.before[-1])

    def through(self) -> Floats:
        """Of each stage how long the shortest way is that it is part of, (K, L, L + 1)."""
        L = len(self.before) - 1
        after = np.full(L + 1, np.inf)
        after[L] = 0.0
        for begin in range(L - 1, -1, -1):
            after[begin] = np.min(self._least[begin, begin + 1 :] + after[begin + 1 :])
        return np.asarray(self.before[:-1, None] + self._costs + after)

    def used(self, counts: Counts) -> NDArray[np.int64]:
        """Devices of each kind that it takes, (K,)."""
        used = np.zeros(len(counts), np.int64)
        end = len(self.before) - 1
        while end:
            begin = self._begin[end]
            kind = self._kind[begin, end]
            used[kind] += counts[kind, begin, end]
            end = begin
        return used
