"""What a drafter has not read of the streams under way."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from backends.engine.streams import Stream

MEMORY = 0.98
"""What an answer's length is worth at the next one's end."""


class Lag:
    """By when each stream last drafted, and how long answers are."""

    def __init__(self) -> None:
        self._read: dict[int, int] = {}
        """By slot: tokens that there were when it last drafted."""
        self._ends = self._tokens = 0.0

    def of(self, streams: Sequence[Stream], usual: int) -> int:
        """Positions of streams that have more than the `usual` since the last verification."""
        lags = (len(stream.tokens) - self._read.get(stream.slot, 0) for stream in streams)
        return sum(lag for lag in lags if lag > usual)

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
        if not self._ends:
            return statistics.fmean(stream.most for stream in streams) / 2
        length = self._tokens / self._ends
        so_far = statistics.fmean(len(stream.tokens) - len(stream.prompt) for stream in streams)
        return max(length - so_far, length / 2)
