"""Where a series changed: E-divisive with a permutation test.

Matteson and James, "A Nonparametric Approach for Multiple Change Point Analysis of Multivariate
Data" (JASA 2014): the best split of a stretch is the one with the largest energy distance between
its two parts, weighted by their sizes (their equations 5 to 7, with exponent 1); it is a change
when few random orders of the stretch have a split that good (their section 3.2); then each part is
searched again. Hunter (Fleming et al., ICPE 2023) puts a t-test in place of the permutations, whose
level does not hold for a split that was chosen to be the best one; here it does, for points whose
noise has no order of its own. Permutations are drawn from a fixed seed: equal series give equal
answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from results.metrics.arrays import Floats

FEWEST = 2
"""Points in each part: one alone may be an accident."""
EXCEEDANCES = 10
"""So many better orders show that nothing changed, and end a test (Besag and Clifford 1991)."""
MOST_ORDERS = 100_000
_CELLS = 4_000_000
"""Of distances that are permuted at once."""


class ChangePoint(NamedTuple):
    """A step between two points of a series."""

    place: int
    """The first point after it."""
    before: float
    """Mean of the stretch before it, up to the change before."""
    after: float
    p: float
    """Share of random orders with a split as good."""


def change_points(values: Sequence[float] | Floats, significance: float) -> list[ChangePoint]:
    """The changes of a series, in order.

    Args:
        values: (n,), finite.
        significance: how often a series of equally distributed points has a change.

    Raises:
        ValueError: for a value that is not finite, and a significance not between 0 and 1.
    """
    series = np.asarray(values, float)
    if not np.isfinite(series).all():
        raise ValueError("a value is not finite")
    if not 0 < significance < 1:
        raise ValueError(f"significance is {significance}; expected 0 to 1")
    if not len(series):
        return []
    found: dict[int, float] = {}
    _search(series, 0, len(series), significance, found)
    bounds = [0, *sorted(found), len(series)]
    means = [float(series[start:end].mean()) for start, end in pairwise(bounds)]
    return [
        ChangePoint(place, means[number], means[number + 1], found[place])
        for number, place in enumerate(bounds[1:-1])
    ]


def fewest_points(significance: float) -> int:
    """The shortest series in which a clean step is found for certain. Of the orders of n points two
    have it as clean, and by how many there are in all p is bounded; half of `significance` leaves
    room for orders being drawn."""
    n = 2 * FEWEST
    while 2 / math.comb(n, n // 2) > significance / 2:
        n += 1
    return n


def _search(
    series: Floats, start: int, end: int, significance: float, found: dict[int, float]
) -> None:
    n = end - start
    if n < 2 * FEWEST or np.ptp(series[start:end]) == 0:
        return
    distances = np.abs(series[start:end, None] - series[None, start:end])
    gains = split_gains(distances[None])[0]
    split = FEWEST + int(gains.argmax())
    p = _p_value(distances, float(gains.max()), significance)
    if p > significance:
        return
    found[start + split] = p
    _search(series, start, start + split, significance, found)
    _search(series, start + split, end, significance, found)


def split_gains(distances: Floats) -> Floats:
    """The weighted energy distance of each split of each stretch: (m, n, n) distances between its
    points in order -> (m, n - 2 * FEWEST + 1), of parts of FEWEST points and more."""
    n = distances.shape[-1]
    sums = distances.cumsum(-1).cumsum(-2)
    sizes = np.arange(FEWEST, n - FEWEST + 1)
    left = sums[:, sizes - 1, sizes - 1]
    both = sums[:, sizes - 1, -1]
    whole = sums[:, -1, -1][:, None]
    right = whole - 2 * both + left
    rest = n - sizes
    between = 2 * (both - left) / (sizes * rest)
    # each pair stands twice in the sums, as it does between the parts above
    within = left / (sizes * (sizes - 1)) + right / (rest * (rest - 1))
    return np.asarray(sizes * rest / n * (between - within))


def _p_value(distances: Floats, best: float, significance: float) -> float:
    """The share of random orders whose best split is as good, the given one among them; stopped
    early where it is above `significance` for certain enough."""
    n = len(distances)
    # the level is exact at any number of orders; more would only make p finer
    wanted = min(MOST_ORDERS, round(4 / significance))
    rng = np.random.default_rng(0)
    orders = better = 0
    at_once = max(1, min(500, _CELLS // (n * n)))
    bound = best * (1 - 1e-9)  # of equal splits rounding would choose
    while orders < wanted:
        count = min(at_once, wanted - orders)
        order = rng.permuted(np.tile(np.arange(n), (count, 1)), axis=1)
        gains = split_gains(distances[order[:, :, None], order[:, None, :]]).max(-1)
        orders += count
        better += int((gains >= bound).sum())
        if better >= EXCEEDANCES and better / orders > significance:
            break
    return (better + 1) / (orders + 1)
