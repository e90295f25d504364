"""Which segment runs next where no stream waits for a verification: in lockstep, or by queues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

LEAST_FIXED = 1e-3
"""In microseconds: a pass that takes no time at all beyond its rows was timed beside other work."""
PASSED_OVER = 16
"""Passes of other segments for which one waits at most: streams differ, and one whose tokens go
deep is alone there beside many whose tokens do not."""


class SegmentChoice(Protocol):
    """Which segment runs next."""

    def choose(self, ready: Sequence[int]) -> int:
        """`ready[i]` streams, at least one in all, wait before segment i."""

    def reset(self) -> None:
        """Forget what was chosen."""


class Lockstep:
    """The deepest segment for which any waits: all streams' tokens go through before the next ones
    begin, and those that left are idle."""

    def choose(self, ready: Sequence[int]) -> int:
        """See `SegmentChoice`."""
        return max(index for index, count in enumerate(ready) if count)

    def reset(self) -> None:
        """See `SegmentChoice`."""


class BalancedQueues:
    """The segment whose queue is longest in proportion to what it should hold.

    Where rows are nearly free, a token takes the sum of ``fixed[i] * share[i] / rows[i]`` over the
    segments: what a pass takes whatever its rows, times the share of the tokens that come to the
    segment, over the rows that share a pass. Of all ways to spread so many streams over the queues
    the sum is least where rows[i] is proportional to the root of ``fixed[i] * share[i]``. Shares
    are counted along the way. A segment that few come to should hold few, so that none waits long;
    and none waits for more than `PASSED_OVER` passes.

    Args:
        fixed: of each segment, the time of a pass that its rows have no part in, in any unit.
    """

    def __init__(self, fixed: Sequence[float]) -> None:
        self._fixed = fixed
        self.reset()

    def reset(self) -> None:
        """See `SegmentChoice`."""
        self._entered = [1] * len(self._fixed)
        self._passed_over = [0] * len(self._fixed)

    def choose(self, ready: Sequence[int]) -> int:
        """See `SegmentChoice`. The deeper one where two are as full."""
        proportions = [
            count / math.sqrt(max(fixed, LEAST_FIXED) * entered)
            for count, fixed, entered in zip(ready, self._fixed, self._entered, strict=True)
        ]
        late = [over >= PASSED_OVER for over in self._passed_over]
        index = max(range(len(ready)), key=lambda i: (late[i], proportions[i], i))
        self._entered[index] += ready[index]
        for i, count in enumerate(ready):
            self._passed_over[i] = self._passed_over[i] + 1 if count and i != index else 0
        return index
