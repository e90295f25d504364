"""What drafting takes while it serves, beside plain steps, more than its costs had said."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable

STEPS = 8
"""Of either sort, the last ones. Their medians are held against each other: other work on a machine
makes single steps many times as long."""
ENOUGH = 3
"""Steps of either sort without which nothing is said; comparisons before they become rare."""
FACTORS = 5
"""Comparisons that count, the last ones."""
AGREE = 2
"""Comparisons without which nothing is corrected: a single one may be another process's doing."""
PLAIN = 5
"""Steps without drafts in a row."""
PLAIN_AFTER = 8, 512
"""Steps with drafts between them, doubled to at most so many."""


class Pace:
    """By how much drafting takes longer than it should, where plain steps take as long as they do.

    Costs are timed ahead, part by part. In a step the parts find other caches and other threads,
    and lie a few microseconds of the interpreter apart, so that a method that seems to pay may not.
    While it drafts, a few steps now and then do not, and both sorts are compared, since a machine's
    pace wanders; a step right after one of the other sort finds that one's caches, and is left out.

    Args:
        clock_ns: of time that only grows.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self.now = clock_ns
        self._sizes: dict[int, _Size] = {}
        """By size of the number of streams."""
        self._step: tuple[int, deque[float], float] | None = None
        """The one under way: when it began, where it belongs, and what it should take in us."""
        self._drafted = False
        """Whether the step before did."""

    def is_plain_due(self, sequences: int) -> bool:
        """Whether the next step is one of those without drafts. Asked before each that might."""
        return self._size(sequences).is_plain_due()

    def begin(self, sequences: int, drafts: int, us: float, since_ns: int) -> bool:
        """A step has begun that should take so long; whether a comparison was made of those before
        it."""
        drafting, size = drafts > 0, self._size(sequences)
        if drafting == self._drafted:
            self._step = since_ns, size.drafting if drafting else size.plain, us
            return False
        self._step, self._drafted = None, drafting
        return drafting and size.compare()

    def end(self) -> None:
        """Its verification has been made."""
        if self._step is not None:
            begun, ratios, us = self._step
            self._step = None
            ratios.append((self.now() - begun) / 1e3 / us)

    def stop(self) -> None:
        """Drafts do not pay: later steps are not held against those so far."""
        self._step, self._drafted = None, False
        for size in self._sizes.values():
            size.forget_steps()

    def of(self, sequences: int) -> float:
        """The factor of steps that draft, for so many streams; by others' where none was found."""
        own = self._size(sequences).factors
        others = itertools.chain.from_iterable(size.factors for size in self._sizes.values())
        found = list(own or others)
        # and one that found no difference, so that of two the milder counts
        return float(statistics.median((1.0, *found))) if len(found) >= AGREE else 1.0

    def age(self) -> None:
        """Forget the oldest comparison of each size: what keeps drafts from being made is not made
        again else."""
        for size in self._sizes.values():
            size.age()

    def _size(self, sequences: int) -> _Size:
        bits = sequences.bit_length()
        size = self._sizes.get(bits)
        if size is None:
            size = self._sizes[bits] = _Size()
        return size


class _Size:
    """What was seen of like numbers of streams."""

    def __init__(self) -> None:
        self.plain: deque[float] = deque(maxlen=STEPS)
        """Times over costs since the last comparison."""
        self.drafting: deque[float] = deque(maxlen=STEPS)
        self.factors: deque[float] = deque(maxlen=FACTORS)
        self._pause = self._left = PLAIN_AFTER[0]
        self._plain_left = 0

    def is_plain_due(self) -> bool:
        if not self._plain_left:
            self._left -= 1
            if self._left >= 0:
                return False
            if len(self.factors) >= ENOUGH:
                self._pause = min(2 * self._pause, PLAIN_AFTER[1])
            self._left, self._plain_left = self._pause, PLAIN
        self._plain_left -= 1
        return True

    def compare(self) -> bool:
        if min(len(self.plain), len(self.drafting)) < ENOUGH:
            return False
        self.factors.append(statistics.median(self.drafting) / statistics.median(self.plain))
        self.forget_steps()
        return True

    def forget_steps(self) -> None:
        self.plain.clear()
        self.drafting.clear()

    def age(self) -> None:
        if self.factors:
            self.factors.popleft()
        if len(self.factors) < ENOUGH:
            self._pause = self._left = PLAIN_AFTER[0]
