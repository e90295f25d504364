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
"""Steps of either sort without which nothing is said."""
FACTORS = 5
"""Comparisons that count, the last ones, and one that had found no difference."""


class Pace:
    """By how much drafting takes longer than it should, where plain steps take as long as they do.

    Costs are timed ahead, part by part. In a step the parts find other caches and other threads,
    and lie a few microseconds of the interpreter apart, so that a method that seems to pay may not.
    Steps with and without drafts are compared that follow one another, since a machine's pace
    wanders; one right after a step of the other sort finds that one's caches, and is left out.

    Args:
        clock_ns: of time that only grows.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock_ns = clock_ns
        self._ratios: dict[tuple[int, bool], deque[float]] = {}
        """Times over costs since the last comparison, by size of the number of streams, and whether
        the step drafted."""
        self._factors: dict[int, deque[float]] = {}
        """By size of the number of streams."""
        self._step: tuple[int, tuple[int, bool], float] | None = None
        """The one under way: when it began, its kind, and the microseconds that it should take."""
        self._drafted = False
        """Whether the step before did."""

    def begin(self, sequences: int, drafts: int, us: float) -> None:
        """A step begins that should take so long."""
        size, drafting = sequences.bit_length(), drafts > 0
        if drafting == self._drafted:
            self._step = self._clock_ns(), (size, drafting), us
            return
        self._step, self._drafted = None, drafting
        if drafting:
            self._compare(size)

    def end(self) -> None:
        """Its verification has been made."""
        if self._step is not None:
            begun, kind, us = self._step
            self._step = None
            taken = (self._clock_ns() - begun) / 1e3 / us
            self._ratios.setdefault(kind, deque(maxlen=STEPS)).append(taken)

    def drop(self) -> None:
        """The step under way is like no other."""
        self._step = None

    def of(self, sequences: int) -> float:
        """The factor of steps that draft, for so many streams; by others' where none was found."""
        others = itertools.chain.from_iterable(self._factors.values())
        factors = self._factors.get(sequences.bit_length()) or others
        return float(statistics.median((1.0, *factors)))

    def age(self) -> None:
        """Forget the oldest comparison of each: one that went wrong is not made again where it
        keeps drafts from being made."""
        for factors in self._factors.values():
            if factors:
                factors.popleft()

    def _compare(self, size: int) -> None:
        plain, drafting = (self._ratios.get((size, sort), ()) for sort in (False, True))
        if min(len(plain), len(drafting)) >= ENOUGH:
            found = statistics.median(drafting) / statistics.median(plain)
            self._factors.setdefault(size, deque(maxlen=FACTORS)).append(found)
            self._ratios.clear()
