"""How long a queue before a segment should get: from what passes cost, tried out beforehand.

A pass over few rows costs nearly as much as one over many, so a thin one had better wait; but those
that wait leave the passes of the others thin. `fills` plays streams through the queues with the
measured costs, for several lengths, and keeps the cheapest. Streams leave at each exit with a
certain probability and drafts stand with another, all independently: easy stretches, where one exit
follows another, come out as they are on average.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from backends.engine.costs.cost_model import Replay
from backends.engine.costs.row_costs import RowCosts
from backends.engine.segments.policy import FillPolicy

STEPS = 400
"""Verifications that are played for each choice."""
NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of streams that fills are found for."""
GAIN = 0.98
"""Early predictions have to promise a time per token below this share of plain decoding's: a
promise is not kept to the last percent, and without them the same text costs what it costs."""


@dataclass(frozen=True, slots=True)
class SegmentCosts:
    """What passes cost."""

    segments: tuple[RowCosts, ...]
    """Of each segment; of the last one with the final head on all rows."""
    heads: tuple[RowCosts, ...]
    """Of each exit head."""
    whole: RowCosts
    """Of all segments in one call, and the final head."""


@dataclass(frozen=True, slots=True)
class ExitRates:
    """What becomes of tokens at the exits."""

    leaves: tuple[float, ...]
    """By exit, the share of those that are asked there and leave."""
    stands: float
    """Share of the drafts that are verified, of those whose predecessors are."""


@dataclass(frozen=True, slots=True)
class ReadyPlan:
    """When to predict early, and how long to wait for company."""

    policy: FillPolicy
    most: int
    """Streams under way up to which early predictions pay; 0 where they never do."""
    speedups: dict[int, float]
    """By number under way, plain decoding's time per token over the one that was played."""


def ready_plan(costs: SegmentCosts, rates: ExitRates, max_drafts: int, slots: int) -> ReadyPlan:
    """The cheapest fills for up to `slots` streams, and up to how many early predictions pay.

    The last segment waits for 1, a quarter, half, three quarters or all of the streams, segments
    between the first and the last for 1 or half as many as that; the first one never waits.
    """
    fills: dict[int, tuple[int, ...]] = {}
    speedups: dict[int, float] = {}
    most = 0
    for number in [*(n for n in NUMBERS if n < slots), slots]:
        plain = costs.whole.of(number, number * costs.whole.positions) / number
        tried = {
            f: played(costs, rates, max_drafts, number, f)
            for f in _candidates(number, len(costs.segments))
        }
        best = min(tried, key=lambda f: tried[f])
        fills[number], speedups[number] = best, plain / tried[best]
        if tried[best] < plain * GAIN:
            most = number
    return ReadyPlan(FillPolicy(fills), most, speedups)


def _candidates(number: int, segments: int) -> list[tuple[int, ...]]:
    """The first one waits for nothing."""
    found: set[tuple[int, ...]] = set()
    for last in {max(1, -(-number * quarters // 4)) for quarters in range(5)}:
        found |= {(1, *(inner,) * (segments - 2), last) for inner in (1, max(1, last // 2))}
    return sorted(found)


def played(
    costs: SegmentCosts,
    rates: ExitRates,
    max_drafts: int,
    number: int,
    fills: tuple[int, ...],
    steps: int = STEPS,
) -> float:
    """Microseconds per token of so many streams, with these fills, over so many verifications."""
    last, draw = len(costs.segments) - 1, random.Random(7)
    policy = FillPolicy({1: fills})
    length = costs.whole.positions
    queues: list[list[_QueuedStream]] = [[] for _ in costs.segments]
    queues[0] = [_QueuedStream([1] * len(costs.segments)) for _ in range(number)]
    spent, tokens, verified = 0.0, 0, 0
    while verified < steps:
        index = policy.choose([len(queue) for queue in queues], 1)
        passing, queues[index] = queues[index], []
        rows = sum(stream.waiting[index] for stream in passing)
        spent += costs.segments[index].of(rows, len(passing) * length)
        if index < last and (asked := sum(s.drafts < max_drafts for s in passing)):
            spent += costs.heads[index].of(asked, costs.heads[index].positions)
        for stream in passing:
            if index == last:
                tokens += stream.settle(draw, rates.stands)
                verified += 1
                queues[0].append(stream)
                continue
            stream.waiting[index] = 0
            if stream.drafts < max_drafts and draw.random() < rates.leaves[index]:
                stream.drafts += 1
                stream.waiting = [rows + 1 for rows in stream.waiting]
                queues[0].append(stream)
            else:
                queues[index + 1].append(stream)
    return spent / tokens


@dataclass(slots=True)
class _QueuedStream:
    """A stream: its drafts, and the rows that each segment has not seen."""

    waiting: list[int]
    drafts: int = 0

    def settle(self, draw: random.Random, stands: float) -> int:
        """How many tokens a verification brings."""
        kept = 0
        while kept < self.drafts and draw.random() < stands:
            kept += 1
        self.drafts, self.waiting = 0, [1] * len(self.waiting)
        return kept + 1


def rates_of(replay: Replay) -> ExitRates:
    """Those of a replayed trace. A draft stands when its predecessors do and it is right, so that
    of `d` drafts in a row with the chance p each, (p + p^2 + ... + p^d) / d stand."""
    drafts = sum(replay.exits)
    share, length = sum(replay.accepted) / max(drafts, 1), max(drafts / replay.cycles, 1.0)
    low, high = share, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        stand = sum(middle ** (k + 1) for k in range(round(length))) / round(length)
        low, high = (middle, high) if stand < share else (low, middle)
    leaves = zip(replay.exits, replay.checks, strict=True)
    return ExitRates(tuple(left / max(asked, 1) for left, asked in leaves), low)


def assumed(exits: Sequence[object]) -> ExitRates:
    """Where no trace says what becomes of tokens: half of those asked leave, and most stand."""
    return ExitRates((0.5,) * len(exits), 0.95)
