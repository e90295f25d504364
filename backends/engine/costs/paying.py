"""Whether drafting pays where it is done: the tokens per second of steps with drafts, over those of
plain steps among them.

What steps cost is timed before any trial, within seconds. Where a machine's pace wanders that is
wrong by a tenth or two, which near the break-even point decides the wrong way for all that follows.
TurboSpec (Liu et al., 2024, arXiv 2406.14066) closes the loop over what is accepted; this closes it
over time, too: what does not pay, as it is run, is left for a while.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

BLOCK, TIMED = 10, 4
"""Plain steps in a row, and the last of them that count: the first behind drafts take up to 1.25
times as long (`costs.steps.SETTLED`)."""
BETWEEN = 64
"""Steps with drafts between two such blocks, and as many as are looked at."""
SURE, RARELY = 1.25, 512
"""Times plain decoding from which on so many lie between two blocks."""
ENOUGH = 24
"""Steps with drafts, before they are judged."""
JUDGED = 8
"""Every so many of them: it takes 15 us, where a step of a small model takes 100."""
OFF = 512, 8192
"""Plain steps before drafting is tried again: doubled, up to so many, until it pays."""
HELD_UP = 8.0
"""Times the median step with drafts, beyond which something else held it up. Below, it may have had
a prompt to read."""

Steps = deque[tuple[int, float]]
"""Tokens that each brought, and its seconds."""


@dataclass(slots=True)
class _Sides:
    """Of batches of about one size."""

    plain: Steps = field(default_factory=lambda: deque(maxlen=4 * TIMED))
    drafted: Steps = field(default_factory=lambda: deque(maxlen=BETWEEN))
    block: int = BLOCK
    """Plain steps to come before drafts are made: at first, too, to have what to hold them
    against."""
    since: int = 0
    """Steps with drafts since the last block."""
    between: int = BETWEEN
    off: int = 0
    """Plain steps to come before drafting is tried again."""
    next_off: int = OFF[0]

    def judge(self) -> None:
        """Leave drafting where it takes more time than it spares."""
        if len(self.drafted) < ENOUGH or len(self.plain) < TIMED:
            return
        tokens, seconds = zip(*self.drafted, strict=True)
        most = HELD_UP * statistics.median(seconds)
        drafting_s = sum(min(each, most) for each in seconds) / sum(tokens)
        gain = statistics.median(each / n for n, each in self.plain) / drafting_s
        self.between = BETWEEN if gain < SURE else RARELY
        if gain < 1:
            self.off, self.next_off = self.next_off, min(2 * self.next_off, OFF[1])
            self.block, self.since = BLOCK, 0
            self.plain.clear()
            self.drafted.clear()
        elif len(self.drafted) == BETWEEN:
            self.next_off = OFF[0]


class Paying:
    """Times an engine's steps as they are run, by about how many sequences they have. A step in
    which a batch changes does not count, but for the last of a sequence alone.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._sides: dict[int, _Sides] = {}
        self._open: tuple[int, int, bool, float] | None = None
        """The step under way, if it counts: its sequences, their tokens before, whether it has
        drafts, and when it began."""

    def over(self, sequences: int, tokens: int) -> None:
        """The step under way is over, and so many sequences have so many tokens together."""
        if self._open is None:
            return
        count, before, drafts, began = self._open
        self._open = None
        if count != sequences:
            return
        sides = self._of(sequences)
        steps = sides.drafted if drafts else sides.plain
        steps.append((tokens - before, self._clock() - began))
        if drafts and sides.since % JUDGED == 0:
            sides.judge()

    def drop(self) -> None:
        """The step under way does not count."""
        self._open = None

    def may_draft(self, sequences: int, tokens: int) -> bool:
        """Whether a step that begins may have drafts, which costs and acceptance speak for."""
        sides = self._of(sequences)
        if sides.off:
            sides.off -= 1
            return False
        drafts = not sides.block
        if drafts:
            sides.since += 1
            if sides.since >= sides.between:
                sides.block, sides.since = BLOCK, 0
        else:
            sides.block -= 1
        if drafts or sides.block < TIMED:
            self._open = sequences, tokens, drafts, self._clock()
        return drafts

    def rest(self, sequences: int, most: int) -> int:
        """How many plain steps, at most so many, may pass unasked."""
        sides = self._of(sequences)
        steps = min(sides.off, most)
        sides.off -= steps
        return steps

    def _of(self, sequences: int) -> _Sides:
        return self._sides.setdefault(sequences.bit_length(), _Sides())
