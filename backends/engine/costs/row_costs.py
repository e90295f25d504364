"""What a pass costs by its rows and sequences: for decisions about how many tokens to guess."""

from __future__ import annotations

import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from backends.engine.costs.timing import POSITIONS, runs
from backends.engine.costs.waiting import wait_for_device
from backends.engine.drafters.trees.base import Guesses
from backends.engine.executors.base import Executor, StepRows
from backends.engine.executors.trees import TreeRows

ROWS = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
READ = (1, 8, 32, 128)
"""Rows that are read at once, of a model that drafts."""
LEAST_US = 1e-3
TOKENS = 8
"""Of a continuation that is timed."""
Number = TypeVar("Number")
SETTLE_S = 1.5e-3
"""In which the caches come to hold what passes of one size leave in them."""
LONG = 20
"""Times as long as that: a pass in which they come to hold it by the way."""
SEQUENCES = 4
"""Beside one, as many sequences are timed; each is taken to add the same."""


@dataclass(frozen=True, slots=True)
class RowCosts:
    """Microseconds of one pass through some layers and a head on all rows."""

    rows: tuple[int, ...]
    us: tuple[float, ...]
    """Of so many rows of one sequence; what lies between is on a line, what lies beyond goes on."""
    positions: int
    """Those before the first row."""
    cache_us: float
    """What the cache of another such sequence adds; half of it where there are half as many
    positions."""

    def of(self, rows: float, positions: float) -> float:
        """So many rows, of sequences that have so many positions together."""
        high = min(max(bisect_left(self.rows, rows), 1), len(self.rows) - 1)
        if not high:
            return self.us[0] * rows
        low = high - 1
        share = (rows - self.rows[low]) / (self.rows[high] - self.rows[low])
        products = self.us[low] + share * (self.us[high] - self.us[low])
        caches = self.cache_us * (positions / self.positions - 1)
        # a cache that was timed beside other work may seem to cost more than all else
        return max(products + caches, products / 2, LEAST_US)


def pass_costs(executor: Executor) -> RowCosts:
    """`row_costs` of a model without exits whose passes follow one another in one call
    (`Executor.continued`): less what each call costs beyond its pass."""
    found = row_costs(executor)
    rows = StepRows.span(0, found.positions, [0])
    count = min(TOKENS, executor.max_len - found.positions)
    most, nobody = np.array([count], np.int32), np.empty(0, np.int32)
    first = np.zeros(1, np.int32)
    times = lower_quartiles(
        {
            1: lambda: executor.advance(0, rows, first),
            TOKENS: lambda: executor.continued(rows, first, most, 0.0, nobody),
        }
    )
    call = max(0.0, times[1] - times[TOKENS] / count)
    return replace(found, us=tuple(max(us - call, us / 2) for us in found.us))


def turn_us(verifying: Executor, drafting: Executor, verify: RowCosts, draft: RowCosts) -> float:
    """Microseconds that a step takes that drafts one token and verifies it, beyond the two passes
    by themselves: the call, and what each model finds of the other's in the caches. The first slot
    of both is overwritten."""
    length = min(verify.positions, draft.positions)
    judged = min(2, verify.rows[-1])
    rows, both = StepRows.span(0, length, [0]), StepRows.span(0, length, [0] * judged)
    one, nobody = np.ones(1, np.int32), np.empty(0, np.int32)
    first, asked = np.zeros(1, np.int32), np.arange(judged, dtype=np.int32)

    def step() -> None:
        drafting.continued(rows, first, one, 0.0, nobody)
        verifying.advance(0, both, asked)

    alone = verify.of(judged, verify.positions) + draft.of(1, draft.positions)
    return max(0.0, lower_quartiles({0: step})[0] - alone)


def row_costs(executor: Executor, first: int = 0, last: int = 1) -> RowCosts:
    """Time segments `first` to `last` - 1 of an executor, and the last one's head on all rows.

    Lower quartiles, as `timing.measure` takes them, host time included. The first slots of the
    executor are overwritten.
    """
    most = min(ROWS[-1], executor.max_len - 1)
    length = min(POSITIONS, executor.max_len - most)
    several = min(SEQUENCES, executor.slots)
    for slot in range(several):
        executor.prefill(slot, [0] * length)

    def run(slots: int, rows: int) -> None:
        # the rows are made anew each time, as the decoder does it
        numbers = np.repeat(np.arange(slots), rows)
        positions = np.tile(np.arange(length, length + rows), slots)
        table = StepRows(numbers, positions, [0] * len(numbers))
        asked = np.arange(len(numbers), dtype=np.int32)
        for index in range(first, last):
            executor.advance(index, table, asked if index == last - 1 else asked[:0])

    counts = [rows for rows in ROWS if rows <= most]
    # behind a pass of 128 rows a small one takes up to 1.8 times as long: the first does not count
    sizes = {-1: (1, 1), 1: (1, 1), 0: (several, 1), **{rows: (1, rows) for rows in counts}}
    found = lower_quartiles({number: _call(run, *size) for number, size in sizes.items()})
    beside = found[0]
    # other work makes a pass longer and never shorter: what few rows take beyond many is its doing
    descending = np.minimum.accumulate([found[rows] for rows in reversed(counts)])
    us = tuple(descending[::-1].tolist())
    alone = RowCosts(tuple(counts), us, length, 0.0).of(several, length)
    extra = max(0.0, beside - alone) / (several - 1) if several > 1 else 0.0
    return RowCosts(tuple(counts), us, length, extra)


def prompt_us(executor: Executor, read: Callable[[StepRows], object]) -> float:
    """Microseconds that `read` takes for a position of a prompt: keys and values of a model that
    drafts, no head. The first slot of the executor is overwritten."""
    most = min(READ[-1], executor.max_len)
    prompt = StepRows.span(0, 0, [0] * most)
    return lower_quartiles({0: partial(read, prompt)})[0] / most


def reading_costs(executor: Executor, read: Callable[[StepRows], object]) -> RowCosts:
    """Time `read` on positions behind a text of one sequence. The first slot of the executor is
    overwritten."""
    most = min(READ[-1], executor.max_len - 1)
    length = min(POSITIONS, executor.max_len - most)
    executor.prefill(0, [0] * length)
    counts = [rows for rows in READ if rows < most] + [most]
    tables = {rows: StepRows.span(0, length, [0] * rows) for rows in counts}
    found = lower_quartiles({rows: partial(read, table) for rows, table in tables.items()})
    return RowCosts(tuple(counts), tuple(found[rows] for rows in counts), length, 0.0)


def tree_factor(executor: Executor, guesses: Guesses) -> float:
    """What a pass over such a tree takes, over one with as many rows in a chain; at least 1. The
    first slot of the executor is overwritten."""
    assert executor.trees is not None
    trees, count = executor.trees, len(guesses.tokens)
    length = min(POSITIONS, executor.max_len - count)
    if length < 1:  # the sequences are as short, and have no room for it either
        return 1.0
    executor.prefill(0, [0] * length)
    rows = StepRows.span(0, length, guesses.tokens)
    tree = TreeRows.joined([(0, length, guesses.tokens, guesses.back)])
    asked = np.arange(count, dtype=np.int32)
    times = lower_quartiles(
        {0: lambda: executor.advance(0, rows, asked), 1: lambda: trees.run(tree, asked)}
    )
    return max(1.0, times[1] / times[0])


def _call(run: Callable[[int, int], None], slots: int, rows: int) -> Callable[[], None]:
    return lambda: run(slots, rows)


def lower_quartiles(
    calls: Mapping[Number, Callable[[], object]], settle_s: float = SETTLE_S
) -> dict[Number, float]:
    """Microseconds of each call, timed in turns, each behind some like itself for `settle_s`, as
    decoding makes them: a pass of a small model over one row takes up to 2.6 times as long behind
    one over 128. Without settling, each is timed behind the one before it: parts of a step."""
    times: dict[Number, list[float]] = {number: [] for number in calls}
    last = dict.fromkeys(calls, 0.0)
    for counts in runs():
        for number, call in calls.items():
            if last[number] < LONG * settle_s:
                _settle(call, settle_s)
            wait_for_device()
            started = time.perf_counter()
            call()
            wait_for_device()
            last[number] = time.perf_counter() - started
            if counts:
                times[number].append(last[number])
    return {n: 1e6 * statistics.quantiles(found, n=4)[0] for n, found in times.items()}


def _settle(call: Callable[[], object], seconds: float) -> None:
    """At least once, also where a call takes longer than that."""
    settled = time.perf_counter() + seconds
    call()
    while time.perf_counter() < settled:
        call()
        wait_for_device()
