"""The best of many cycle times, without trying all of them.

Every cycle time is bounded together with its neighbours: a range of them is given the devices that
its slowest one needs and the waits of its fastest. Nothing in the range is better than that, so
the ranges are split in the order of what they promise, and the first single cycle time that is
reached is the best of all, exactly.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable


def best(
    ranges: Iterable[tuple[float, int, int]], value: Callable[[int, int], float]
) -> tuple[float, int] | None:
    """The place with the smallest value, and the value; None if all are infinite. Of equal ones
    the first that is found.

    Args:
        ranges: (a lower bound of the values, first place, end) of ranges that do not overlap.
        value: of a range (first place, end) a lower bound of the values in it; of a single place
            its value.
    """
    order = itertools.count()
    heap = [(bound, end - first, next(order), first, end, False) for bound, first, end in ranges]
    heapq.heapify(heap)
    while heap:
        bound, width, _, first, end, known = heapq.heappop(heap)
        if known and width == 1:
            return bound, first
        if not known:
            bound = max(bound, value(first, end))
            if bound < math.inf:
                heapq.heappush(heap, (bound, width, next(order), first, end, True))
            continue
        middle = (first + end) // 2
        for low, high in ((middle, end), (first, middle)):
            heapq.heappush(heap, (bound, high - low, next(order), low, high, False))
    return None


def growing(first: int, end: int) -> list[tuple[int, int]]:
    """The range in parts of 1, 1, 2, 4, ... places, for a search whose answer is likely near its
    beginning."""
    parts, width = [], 1
    while first < end:
        parts.append((first, min(first + width, end)))
        first += width
        width = 1 if len(parts) == 1 else 2 * width
    return parts
