"""What the parts of a step cost where decoding runs them.

How much of what a pass reads lies in the caches is up to what ran before it: a segment that follows
itself may find all of its weights there, and one that follows the last segment none. So whole
cycles are run as decoding runs them, from the first draft to the verification, and each pass is
timed inside them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backends.engine.costs.timing import ENOUGH_S, POSITIONS
from backends.engine.executors.base import Executor, StepRows
from harness.core.pass_costs import StepCosts

RUNS, FEWEST_RUNS, WARM_UP = 24, 6, 1
CYCLES, PLAIN = 2, 2
"""Cycles, and passes of plain decoding, of each run: in turns, so that a machine that changes its
speed changes that of both."""
APART = 4
"""Of so many cycles one has heads in calls of their own, which are timed alone."""

QUARTILE = 25
FEWEST_ALIKE = 4
"""Passes behind the same segment that have a quartile of their own."""


@dataclass(frozen=True, slots=True)
class CyclePass:
    """A segment over the tokens `start` to `end` - 1 of a cycle, the first of which is verified."""

    index: int
    start: int
    end: int
    asked: bool
    """Whether its head is: an exit's about the last token, the final one about all."""


def cycle(draw: random.Random, leaves: Sequence[float], max_drafts: int) -> Iterator[CyclePass]:
    """The passes of a cycle, in order, of tokens that leave at each exit with these chances.

    As `backends.engine.drafters.exits` runs them: a token that leaves brings the next one to the
    first segment, any other goes on, and the last segment takes all that wait. Where `max_drafts`
    wait no exit is asked.
    """
    done, tokens, index = [0] * len(leaves), 1, 0
    while index < len(leaves):
        may_draft = tokens <= max_drafts
        yield CyclePass(index, done[index], tokens, may_draft)
        done[index] = tokens
        left = may_draft and draw.random() < leaves[index]
        tokens, index = (tokens + 1, 0) if left else (tokens, index + 1)
    yield CyclePass(index, 0, tokens, True)


Floats = NDArray[np.float64]
Times = dict[tuple[int, int], list[float]]
"""Seconds by rows and by the segment that ran before."""
Line = tuple[float, float]
"""Microseconds at one row, and of each further row."""


@dataclass(slots=True)
class _PassTimes:
    """Of one segment's passes."""

    asked: Times = field(default_factory=dict)
    """With its head."""
    unasked: Times = field(default_factory=dict)
    head: Times = field(default_factory=dict)
    """Of its head alone, behind the segment."""


def cycle_costs(executor: Executor, leaves: Sequence[float], max_drafts: int) -> StepCosts:
    """Microseconds of each segment and head for one sequence, and of plain decoding's pass, timed
    in whole cycles.

    Lower quartiles, host time included: by the segment that ran before and how often it did, and on
    a line over the rows. Slot 0 of the executor is overwritten.

    Args:
        executor: with at least one exit.
        leaves: by exit, the share of the tokens that leave of those that it is asked about.
        max_drafts: where a slot is shorter, as many as it holds after a prompt of one token.
    """
    drafts = min(max_drafts, executor.max_len - 2)
    timed = _Cycles(executor, leaves, drafts)
    timed.run()
    found = [_apart(part) for part in timed.parts]
    asked = [head[0] for _, head in found[:-1] if head is not None]
    # heads are alike: one that was never asked costs what the others do
    usual = float(np.mean(asked)) if asked else 0.0
    final, more = found[-1][1] or (0.0, 0.0)
    return StepCosts(
        segments=tuple(one for (one, _), _ in found),
        exit_heads=tuple(usual if head is None else head[0] for _, head in found[:-1]),
        final_head=final,
        segments_full=tuple(one + row * drafts for (one, row), _ in found),
        final_head_full=final + more * drafts,
        plain=_lower_quartile(timed.plain),
    )


def _apart(part: _PassTimes) -> tuple[Line, Line | None]:
    """Of a segment, and of its head; None for one that was never asked."""
    if not part.asked:
        return _line(part.unasked), None
    one, row = _line(part.asked)
    # a head by itself is a call more than one behind its segment
    head, more = _line(part.head) if part.head else (0.0, 0.0)
    head, more = min(head, one), min(more, row)
    return (one - head, row - more), (head, more)


def _line(times: Times) -> Line:
    """The line that a quarter of the passes lie below, or where all have as many rows, the mean of
    what they take behind each segment, by how often that comes about."""
    rows = np.array([rows for (rows, _), found in times.items() for _ in found], float)
    us = 1e6 * np.concatenate([*times.values()])
    if len(set(rows)) > 1:
        return _lower_line(rows - 1, us)
    # one alone may be one that was held up
    quartiles = [
        _lower_quartile(found) if len(found) >= FEWEST_ALIKE else float(np.percentile(us, QUARTILE))
        for found in times.values()
    ]
    counts = np.array([len(found) for found in times.values()])
    return float(np.average(quartiles, weights=counts)), 0.0


def _lower_line(further: Floats, us: Floats) -> Line:
    """Quantile regression (Koenker and Bassett, 1978): the best of all lines through two of the
    points. It neither falls, since rows cost no less than none, nor begins below 0."""
    low, high = np.triu_indices(len(us), 1)
    apart = further[high] != further[low]
    low, high = low[apart], high[apart]
    slopes = (us[high] - us[low]) / (further[high] - further[low])
    starts = us[low] - slopes * further[low]
    through = us / np.maximum(further, 1)
    slopes = np.concatenate((slopes, np.zeros(len(us)), through[further > 0]))
    starts = np.concatenate((starts, us, np.zeros(int((further > 0).sum()))))
    possible = (slopes >= 0) & (starts >= 0)
    slopes, starts = slopes[possible], starts[possible]
    above = us - starts[:, None] - slopes[:, None] * further
    share = QUARTILE / 100
    best = int(np.maximum(share * above, (share - 1) * above).sum(axis=1).argmin())
    return float(starts[best]), float(slopes[best])


class _Cycles:
    """Cycles and plain passes of one sequence on an executor, timed."""

    def __init__(self, executor: Executor, leaves: Sequence[float], max_drafts: int) -> None:
        self._executor, self._leaves, self._max_drafts = executor, leaves, max_drafts
        self._length = min(POSITIONS, executor.max_len - max_drafts - 1)
        self._before = len(leaves)
        """The segment that ran last."""
        self._forget()

    def _forget(self) -> None:
        self.parts = [_PassTimes() for _ in (*self._leaves, None)]
        self.plain: list[float] = []
        """Seconds of passes behind others like them."""

    def run(self) -> None:
        """Cycles and plain passes in turns."""
        self._executor.prefill(0, [0] * self._length)
        draw, begin, number = random.Random(7), time.perf_counter(), 0
        for run in range(-WARM_UP, RUNS):
            if run == 0:
                self._forget()
            if run >= FEWEST_RUNS and time.perf_counter() - begin > ENOUGH_S:
                break
            for _ in range(CYCLES):
                number += 1
                step = self._in_two if number % APART == 0 else self._in_one
                for one in cycle(draw, self._leaves, self._max_drafts):
                    step(one)
            self._decode_plainly()

    def _in_one(self, one: CyclePass) -> None:
        """The segment and its head in one call, as in decoding."""
        started = time.perf_counter()
        rows = self._rows(one.start, one.end)
        wanted = np.arange(self._first_asked(one), len(rows), dtype=np.int32)
        self._executor.advance(one.index, rows, wanted)
        seconds = time.perf_counter() - started
        part = self.parts[one.index]
        kept = part.asked if one.asked else part.unasked
        kept.setdefault((len(rows), self._before), []).append(seconds)
        self._before = one.index

    def _in_two(self, one: CyclePass) -> None:
        """The segment, then its head, which is timed."""
        self._executor.segment(one.index, self._rows(one.start, one.end))
        if one.asked:
            started = time.perf_counter()
            rows = self._rows(one.start + self._first_asked(one), one.end)
            self._executor.exit_head(one.index, rows)
            kept = self.parts[one.index].head.setdefault((len(rows), one.index), [])
            kept.append(time.perf_counter() - started)
        self._before = one.index

    def _first_asked(self, one: CyclePass) -> int:
        """The number of the first row that the head is asked about."""
        rows = one.end - one.start
        if not one.asked:
            return rows
        return 0 if one.index == len(self._leaves) else rows - 1

    def _rows(self, start: int, end: int) -> StepRows:
        """Made anew each time, as the decoder does it."""
        return StepRows.span(0, self._length + start, [0] * (end - start))

    def _decode_plainly(self) -> None:
        asked = np.zeros(1, np.int32)
        for number in range(PLAIN):
            started = time.perf_counter()
            self._executor.whole(self._rows(0, 1), asked)
            if number:
                self.plain.append(time.perf_counter() - started)
        self._before = len(self._leaves)


def _lower_quartile(seconds: Sequence[float]) -> float:
    """In microseconds: other work on the machine disturbs it least."""
    return 1e6 * float(np.percentile(seconds, QUARTILE))
