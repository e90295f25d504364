"""The search for a set of sublayers while decoding: random, with a guided try between.

SWIFT (Xia et al., 2024, arXiv 2410.06916, section 4.1): sets of one size are tried on the newest
tokens; most are drawn at random, every so often one is chosen by Bayesian optimisation. Here that
is a Gaussian process over the number of sublayers in which two sets differ, and the set of largest
expected improvement among random ones and neighbours of the best (Jones et al., 1998). Unlike the
paper, a newcomer is held against the best set on the same tokens, and takes its place only where
it is better over all that each was tried on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from backends.engine.sublayers.sets import Sublayers

GUIDED_EVERY = 4
"""Tries, of which one is chosen by what the others showed."""
POOL = 64
"""Sets that such a choice is made among."""
FEWEST = 4
"""Sets that have to be known before."""
NOISE = 0.05
"""Standard deviation of a share of right tokens, beside what sets differ by."""
Flags = tuple[bool, ...]


class SetSearch:
    """Sets that leave out so many sublayers, none of the first and the last layer where there are
    more than two.

    Args:
        layers: of the model.
        share: of all sublayers that are left out, at least one and at most those that may be.
        seed: of the random sets.
    """

    def __init__(self, layers: int, share: float, seed: int) -> None:
        ends = 2 if layers > 2 else 0
        self._free = range(ends, 2 * layers - ends)
        self._layers, self._seed = layers, seed
        most = len(self._free) if ends else len(self._free) - 1
        self._size = min(max(round(share * 2 * layers), 1), most)
        self.reset()

    def reset(self) -> None:
        """Begin anew: with sublayers that lie evenly."""
        self._random = random.Random(self._seed)
        self._tries = 0
        self._seen: dict[Flags, tuple[float, float]] = {}
        """Of each set: tokens that it predicted right, and all that it was tried on."""
        step = len(self._free) / self._size
        self._best = self._flags(self._free[int(step * i)] for i in range(self._size))

    @property
    def best(self) -> Sublayers:
        """The best set so far."""
        return Sublayers.of(self._best)

    @property
    def matchness(self) -> float:
        """The share of tokens that the best set predicted right, over all that it was tried on."""
        return _rate(self._seen.get(self._best, (0, 0)))

    def next(self) -> Sublayers:
        """A set to try beside the best one."""
        self._tries += 1
        guided = self._tries % GUIDED_EVERY == 0 and len(self._seen) >= FEWEST
        return Sublayers.of(self._most_promising() if guided else self._drawn())

    def tried(self, right: Mapping[Sublayers, int], tokens: int) -> None:
        """Take note of how many of the same `tokens` each set predicted right."""
        for left_out, hits in right.items():
            flags = left_out.flags(self._layers)
            before = self._seen.get(flags, (0, 0))
            self._seen[flags] = before[0] + hits, before[1] + tokens
        rivals = [left_out.flags(self._layers) for left_out in right]
        self._best = max([self._best, *rivals], key=lambda x: _rate(self._seen.get(x, (0, 0))))

    def _flags(self, chosen: Iterable[int]) -> Flags:
        numbers = set(chosen)
        return tuple(number in numbers for number in range(2 * self._layers))

    def _drawn(self) -> Flags:
        return self._flags(self._random.sample(self._free, self._size))

    def _neighbour(self) -> Flags:
        """The best set with one sublayer changed for another."""
        inside = [number for number in self._free if self._best[number]]
        outside = [number for number in self._free if not self._best[number]]
        if not outside:
            return self._best
        gone, come = self._random.choice(inside), self._random.choice(outside)
        return self._flags({*inside, come} - {gone})

    def _most_promising(self) -> Flags:
        pool = [self._drawn() if n % 2 else self._neighbour() for n in range(POOL)]
        known = np.array(list(self._seen), float)
        rates = np.array([_rate(seen) for seen in self._seen.values()])
        weights = np.array([tokens for _, tokens in self._seen.values()])
        gain = expected_improvement(known, rates, weights / weights.max(), np.array(pool, float))
        return pool[int(np.argmax(gain))]


def expected_improvement(
    known: NDArray[np.float64],
    rates: NDArray[np.float64],
    weights: NDArray[np.float64],
    pool: NDArray[np.float64],
) -> NDArray[np.float64]:
    """By how much each set of a pool is expected to exceed the best of the known ones.

    Args:
        known: (n, sublayers) zeros and ones.
        rates: (n,) what each of them reached.
        weights: (n,) how much each is known by, above 0 and at most 1.
        pool: (m, sublayers).

    Returns:
        (m,), at least 0.
    """
    scale = max(known.shape[1] / 8, 1.0)

    def likeness(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
        # the squared distance of zeros and ones is the number of those that differ
        apart = (one[:, None] - other[None]) ** 2
        return np.asarray(np.exp(-apart.sum(-1) / (2 * scale)), np.float64)

    mean, spread = rates.mean(), max(float(rates.std()), NOISE)
    noise = np.diag((NOISE / spread) ** 2 / weights)
    solved = np.linalg.solve(likeness(known, known) + noise, likeness(known, pool))
    expected = mean + solved.T @ (rates - mean)
    explained = (likeness(known, pool) * solved).sum(0)
    deviation = spread * np.sqrt(np.maximum(1 - explained, 1e-9))
    z = (expected - rates.max()) / deviation
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in z])
    return np.asarray(np.maximum(deviation * (z * below + density), 0.0), np.float64)


def _rate(seen: tuple[float, float]) -> float:
    """Right tokens over all, of which one is supposed right and one wrong beforehand."""
    return (seen[0] + 1) / (seen[1] + 2)
