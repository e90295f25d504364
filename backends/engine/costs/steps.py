"""What whole steps with drafts take beside plain ones, as decoding makes them.

Costs that are added up from parts leave out what the parts do to one another: each finds the other
models' weights in the caches where it left its own, and so does the interpreter between them.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backends.engine.costs.timing import POSITIONS
from backends.engine.decoder import Decoder
from backends.engine.drafters.adaptive import DraftCosts
from backends.engine.drafters.base import Drafter
from backends.engine.executors.base import Executor
from backends.engine.streams import Output, Stream

SEQUENCES = 1, 4, 16, 64
"""Under way: those below the slots, and all slots up to the last. What lies between is on a line
over the logarithm; more are like the last."""
DRAFTS = 1, 4, 12
"""Most of a sequence, as far as the drafter goes; what lies between is on a line. Few drafts do not
tell of many: what a step takes beyond its parts is once per step, and a share of it per draft."""
TURNS, FEWEST_TURNS = 18, 6
"""Each with one number of drafts."""
EACH_S, LAST_S = 0.8, 3.0
"""After which a number of sequences has no more than the fewest turns, and no larger one is timed.
"""
LONG_S = 15.0
"""Likewise, and no more than one with each number of drafts."""
TIMED, FEWEST_TIMED = 6, 2
"""Steps of one sort in a turn."""
LONGEST = 768
"""Tokens of an answer, so that texts stay about as long as those that parts are timed behind."""
SETTLED, SETTLE_S = 8, 0.005
"""Plain steps, or the time of them, before those that are timed: the caches come to hold what they
leave in them. The first six behind drafts take 1.06 to 1.25 times as long as later ones, as much
slower as plain decoding would seem to be; steps with drafts differ less."""
TURN_S = 0.05
"""After which no more than the fewest steps of a sort are timed."""


@dataclass(frozen=True, slots=True)
class WholeSteps:
    """`DraftCosts` of which those with drafts are so many times what their parts add up to."""

    parts: DraftCosts
    sequences: tuple[int, ...]
    drafts: tuple[int, ...]
    """`DRAFTS` as far as the drafter goes; more are like the last."""
    factors: tuple[tuple[float, ...], ...]
    """By `sequences` and `drafts`: a step with drafts over a plain one, as measured over as added
    up."""

    @property
    def read_us(self) -> float:
        """See `DraftCosts.read_us`."""
        return self.parts.read_us

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        """See `DraftCosts.of`."""
        plain, *others = self.parts.of(sequences, positions, tokens, stands)
        found = self._factors(sequences)
        return [plain, *(us * _between(self.drafts, found, n + 1) for n, us in enumerate(others))]

    def _factors(self, sequences: int) -> list[float]:
        """By `drafts`."""
        logs = [math.log(count) for count in self.sequences]
        return [
            _between(logs, column, math.log(sequences))
            for column in zip(*self.factors, strict=True)
        ]


def _between(points: Sequence[float], values: Sequence[float], at: float) -> float:
    """On the lines through the points; outside of them the nearest value."""
    high = bisect_left(points, at)
    if high in (0, len(points)):
        return values[min(high, len(points) - 1)]
    share = (at - points[high - 1]) / (points[high] - points[high - 1])
    return values[high - 1] + share * (values[high] - values[high - 1])


def _nearest(points: Iterable[int], at: int) -> int:
    return min(points, key=lambda point: abs(point - at))


def whole_steps(parts: DraftCosts, executor: Executor, drafter: Drafter) -> DraftCosts:
    """Decode made-up prompts with few drafts and with none in turns, and hold `parts` against it;
    `parts` as they are where slots are too short for that, or nothing is ever drafted.

    Medians over turns of the ratio of mean times. The first slots of the executor are overwritten,
    and the drafter forgets all streams.

    Args:
        parts: of the drafter that will serve.
        executor: the model's.
        drafter: one like it that drafts as many tokens as it may, however unsure.
    """
    most, found = drafter.max_drafts, dict[int, tuple[float, ...]]()
    counts = {min(count, executor.slots) for count in SEQUENCES}
    drafts = tuple(sorted({min(count, most) for count in DRAFTS}))
    for count in sorted(counts):
        begin = time.perf_counter()
        ratios = _Turns(parts, executor, drafter, count, drafts).ratios()
        if ratios:
            found[count] = ratios
        if time.perf_counter() - begin > LAST_S:
            break
    drafter.max_drafts = most
    return WholeSteps(parts, tuple(found), drafts, tuple(found.values())) if found else parts


class _Turns:
    """So many sequences, decoded with drafts and without in turns."""

    def __init__(
        self,
        parts: DraftCosts,
        executor: Executor,
        drafter: Drafter,
        count: int,
        drafts: Sequence[int],
    ) -> None:
        self._parts, self._drafter, self._count, self._drafts = parts, drafter, count, drafts
        self._decoder, self._executor = Decoder(executor, drafter), executor
        # as long as those that parts are timed behind
        self._prompt = min(POSITIONS, executor.max_len // 2)
        self._draw = random.Random(7)
        self._streams: list[Stream] = []

    def ratios(self) -> tuple[float, ...]:
        """By numbers of drafts, steps with drafts over plain ones: as measured over as added up. A
        number without room is like the nearest. Empty where nothing was drafted."""
        found: dict[int, list[float]] = {most: [] for most in self._drafts}
        begin = time.perf_counter()
        for turn in range(-1, TURNS):
            spent = time.perf_counter() - begin
            if (turn >= FEWEST_TURNS and spent > EACH_S) or (turn >= len(found) and spent > LONG_S):
                break
            rounds, place = divmod(max(turn, 0), len(found))
            most = self._drafts[place]
            ratio = self._ratio(most, plain_first=rounds % 2 == 0)
            if turn >= 0 and ratio is not None:
                found[most].append(ratio)
        self._decoder.reset()
        known = {most: statistics.median(ratios) for most, ratios in found.items() if ratios}
        return tuple(known[_nearest(known, most)] for most in found) if known else ()

    def _ratio(self, most: int, *, plain_first: bool) -> float | None:
        """Of one turn; None where nothing is drafted."""
        if not self._make_room((1 + TIMED) * (1 + most) + SETTLED + TIMED):
            return None
        sorts = (0, most) if plain_first else (most, 0)
        timed = {sort: self._timed(sort) for sort in sorts}
        (plain_s, _), (drafting_s, outputs) = timed[0], timed[most]
        drafted, stood = (
            [output.counts[name] for output in outputs] for name in ("drafted", "accepted")
        )
        if not any(drafted):
            return None
        tokens, stands = (
            [sum(n > place for n in column) / len(column) for place in range(most)]
            for column in (drafted, stood)
        )
        positions = sum(len(stream.tokens) for stream in self._streams)
        believed = self._parts.of(self._count, positions, tokens, stands)
        return drafting_s / plain_s / (believed[most] / believed[0])

    def _timed(self, most: int) -> tuple[float, list[Output]]:
        """Mean seconds of steps with at most so many drafts of a sequence, and what they gave."""
        self._drafter.max_drafts = most
        begin = time.perf_counter()
        for _ in range(1 if most else SETTLED):
            self._decoder.step()
            if time.perf_counter() - begin > SETTLE_S:
                break
        outputs: list[Output] = []
        begin = time.perf_counter()
        for steps in range(1, TIMED + 1):
            outputs += self._decoder.step()
            seconds = time.perf_counter() - begin
            if steps >= FEWEST_TIMED and seconds > TURN_S:
                break
        return seconds / steps, outputs

    def _make_room(self, tokens: int) -> bool:
        """All sequences are under way with room for so many more tokens each; whether there is."""
        left = min((s.most + len(s.prompt) - len(s.tokens) for s in self._streams), default=0)
        if left > tokens:
            return True
        self._decoder.reset()
        self._streams = []
        most = min(self._executor.max_len - self._prompt, LONGEST)
        if most <= tokens + 1:
            return False
        words = range(self._executor.architecture.vocabulary)
        self._streams = [
            Stream(str(n), tuple(self._draw.choices(words, k=self._prompt)), most)
            for n in range(self._count)
        ]
        for stream in self._streams:
            self._decoder.add(stream)
        while min(len(stream.tokens) for stream in self._streams) <= self._prompt:
            self._drafter.max_drafts = 0
            self._decoder.step()
        return True
