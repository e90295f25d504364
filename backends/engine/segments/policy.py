"""Which segment runs next, when streams wait before each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FillPolicy:
    """The deepest segment whose queue is as long as its fill runs next; where none is, the one with
    the longest queue.

    So a thin pass waits for company as long as others have work, and nothing waits for what cannot
    come.
    """

    fills: Mapping[int, tuple[int, ...]]
    """By number of streams under way, how many each segment waits for. What lies between two
    numbers is taken as the smaller one."""

    def choose(self, ready: Sequence[int], under_way: int) -> int:
        """The number of the segment, with `ready[i]` streams waiting before segment i, one of them
        at least, and so many under way at all."""
        fills = self.of(under_way)
        for index in reversed(range(len(ready))):
            if ready[index] >= fills[index]:
                return index
        return max(reversed(range(len(ready))), key=lambda index: ready[index])

    def of(self, under_way: int) -> tuple[int, ...]:
        """How many each segment waits for; what is above the number under way never comes."""
        known = [number for number in self.fills if number <= under_way]
        return self.fills[max(known, default=min(self.fills))]
