"""What verifications have shown of drafts, and what a drafter has not read yet."""

from __future__ import annotations

import math
from collections.abc import Sequence

from backends.engine.streams import Stream

MEMORY = 0.98
"""What a verification's evidence is worth at the next."""
PRIOR = 4.0
"""Verifications that a belief is worth. The acceptance of a draft is believed to be that of the one
before it."""


class Lag:
    """What a drafter has not read of the streams under way."""

    def __init__(self) -> None:
        self._read: dict[int, int] = {}
        """By slot: tokens that there were when it last drafted."""
        self._ends = self._tokens = 0.0

    def of(self, streams: Sequence[Stream], usual: int) -> int:
        """Positions of streams that have more than the `usual` since the last verification."""
        read = self._read
        lags = [len(stream.tokens) - read.get(stream.slot, 0) for stream in streams]
        return sum([lag for lag in lags if lag > usual])

    def caught_up(self, streams: Sequence[Stream]) -> None:
        """All that there is of them is read now."""
        for stream in streams:
            self._read[stream.slot] = len(stream.tokens)

    def ended(self, stream: Stream) -> None:
        """Note the answer's length; the slot's next stream is unread."""
        self._read.pop(stream.slot, None)
        self._ends = self._ends * MEMORY + 1
        self._tokens = self._tokens * MEMORY + len(stream.tokens) - len(stream.prompt)

    def left(self, streams: Sequence[Stream]) -> float:
        """Tokens that each stream is expected to bring yet, by the lengths of the last answers; of
        the first ones, that they take half of what they may."""
        # sums, since statistics.fmean takes as long as a tenth of a small model's step
        if not self._ends:
            return sum([stream.most for stream in streams]) / len(streams) / 2
        length = self._tokens / self._ends
        so_far = sum([len(stream.tokens) - len(stream.prompt) for stream in streams])
        return max(length - so_far / len(streams), length / 2)


class Rate:
    """A share, of which the latest cases count most."""

    def __init__(self) -> None:
        self._cases = self._yes = 0.0
        self._ever = 0

    def add(self, cases: int, yes: bool) -> None:
        """So many more, all alike."""
        fade = MEMORY**cases
        self._cases = self._cases * fade + cases
        self._yes = self._yes * fade + cases * yes
        self._ever += cases

    def given(self, belief: float) -> float:
        """The share, a belief included."""
        return (self._yes + PRIOR * belief) / (self._cases + PRIOR)

    def at_best(self, share: float) -> float:
        """A standard error above the share, of all cases that there ever were: what is timed wrong
        stays so, however long it is looked at."""
        return min(1.0, share + math.sqrt(share * (1 - share) / (self._ever + PRIOR)))


def chained(rates: Sequence[Rate], belief: float, *, at_best: bool = False) -> list[float]:
    """The products of the first rates, each believed to be like the one before it."""
    found, product = [], 1.0
    for rate in rates:
        belief = rate.given(belief)
        product *= rate.at_best(belief) if at_best else belief
        found.append(product)
    return found
