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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backends.engine.costs.timing import ENOUGH_S
from backends.engine.decoder import Decoder
from backends.engine.drafters.adaptive import DraftCosts
from backends.engine.drafters.base import Drafter
from backends.engine.executors.base import Executor
from backends.engine.streams import Output, Stream

SEQUENCES = 1, 4, 16
"""Under way; more are taken to be like the last."""
PROMPT = 32
DRAFTS = 1, 3
"""Most of a sequence, by turns."""
TURNS, FEWEST_TURNS = 8, 2
TIMED, FEWEST_TIMED = 6, 2
"""Steps of one sort in a turn, behind one that finds what the other sort left in the caches."""
TURN_S = 0.05
"""After which no more than the fewest steps of a sort are timed."""


@dataclass(frozen=True, slots=True)
class WholeSteps:
    """`DraftCosts` of which those with drafts are so many times what their parts add up to."""

    parts: DraftCosts
    sequences: tuple[int, ...]
    factors: tuple[float, ...]
    """Of steps with drafts over plain ones, each as measured over as added up."""

    @property
    def read_us(self) -> float:
        """See `DraftCosts.read_us`."""
        return self.parts.read_us

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        """See `DraftCosts.of`."""
        plain, *others = self.parts.of(sequences, positions, tokens, stands)
        factor = self._factor(sequences)
        return [plain, *(us * factor for us in others)]

    def _factor(self, sequences: int) -> float:
        """On a line over the logarithm of their number."""
        high = bisect_left(self.sequences, sequences)
        if high in (0, len(self.sequences)):
            return self.factors[min(high, len(self.factors) - 1)]
        (few, many), (one, other) = (x[high - 1 : high + 1] for x in (self.sequences, self.factors))
        return one + (other - one) * math.log(sequences / few) / math.log(many / few)


def whole_steps(parts: DraftCosts, executor: Executor, drafter: Drafter) -> DraftCosts:
    """Decode made-up prompts with few drafts and with none in turns, and hold `parts` against it;
    `parts` as they are where slots are too short for that, or nothing is ever drafted.

    Medians over turns of the ratio of mean times. The first slots of the executor are overwritten,
    and the drafter forgets all streams.
    """
    most = drafter.max_drafts
    found: dict[int, float] = {}
    for count in (n for n in SEQUENCES if n <= executor.slots):
        began = time.perf_counter()
        ratios = list(_Turns(parts, executor, drafter, count, most).ratios())
        if ratios:
            found[count] = statistics.median(ratios)
        if time.perf_counter() - began > ENOUGH_S:
            break
    drafter.max_drafts = most
    return WholeSteps(parts, tuple(found), tuple(found.values())) if found else parts


class _Turns:
    """So many sequences, decoded with drafts and without in turns."""

    def __init__(
        self, parts: DraftCosts, executor: Executor, drafter: Drafter, count: int, most: int
    ) -> None:
        self._parts, self._drafter, self._count, self._most = parts, drafter, count, most
        self._decoder, self._executor = Decoder(executor, drafter), executor
        self._draw = random.Random(7)
        self._streams: list[Stream] = []

    def ratios(self) -> Iterator[float]:
        """By turn, steps with drafts over plain ones: as measured over as added up."""
        begin = time.perf_counter()
        for turn in range(-1, TURNS):
            if turn >= FEWEST_TURNS and time.perf_counter() - begin > ENOUGH_S:
                break
            most = min(DRAFTS[turn % len(DRAFTS)], self._most)
            if not self._make_room((1 + TIMED) * (2 + most)):
                break
            plain_s, _ = self._timed(0)
            drafting_s, outputs = self._timed(most)
            drafted, stood = (
                sum(output.counts[name] for output in outputs) / len(outputs)
                for name in ("drafted", "accepted")
            )
            if turn < 0 or not drafted:
                continue
            tokens, stands = (
                [max(0.0, min(1.0, x - n)) for n in range(most)] for x in (drafted, stood)
            )
            positions = sum(len(stream.tokens) for stream in self._streams)
            believed = self._parts.of(self._count, positions, tokens, stands)
            yield drafting_s / plain_s / (believed[most] / believed[0])
        self._decoder.reset()

    def _timed(self, most: int) -> tuple[float, list[Output]]:
        """Mean seconds of steps with at most so many drafts of a sequence, and what they gave."""
        self._drafter.max_drafts = most
        self._decoder.step()
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
        most = self._executor.max_len - PROMPT
        if most <= tokens + 1:
            return False
        words = range(self._executor.architecture.vocabulary)
        self._streams = [
            Stream(str(n), tuple(self._draw.choices(words, k=PROMPT)), most)
            for n in range(self._count)
        ]
        for stream in self._streams:
            self._decoder.add(stream)
        while min(len(stream.tokens) for stream in self._streams) <= PROMPT:
            self._drafter.max_drafts = 0
            self._decoder.step()
        return True
