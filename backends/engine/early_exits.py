"""Early exit, each sequence by itself: a token that is sure enough in the middle of the model is
the answer's next one, and nothing verifies it.

A stream waits before the segment that its last token has come to, and a pass takes all that wait
before one segment. A stream that leaves begins its next token at once: the batch is regrouped in
place, as in DREX (arXiv 2512.15705), where the early-exit paper lets a batch leave with its last
sequence. The layers after the exit owe the token their keys and values: these are filled from the
state that it left with, for all streams together, before a token of one that owes goes on through
those layers, so that their weights are read once for many.

What a stream owes is a contiguous range of each boundary, as in `drafters.exits`; the older a
position, the deeper it waits, since a token enters no segment that owes. So the deepest boundary is
filled first, and positions are filled in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from backends.engine.decisions import DecisionHook
from backends.engine.draws import Draws
from backends.engine.executors.base import RING, Executor, StepRows
from backends.engine.passes import Span, depths, enter, rows_of
from backends.engine.segments.queues import SegmentChoice
from backends.engine.streams import Stream
from backends.engine.tree_verification import Verdict

Measure = Callable[[int, StepRows], Sequence[float]]
"""How sure each row is after segment `index`, whose states wait in the boundary behind it."""


class LeavingRule(Protocol):
    """When a token leaves, and what is told of it."""

    def passes(self, stream: Stream, index: int, confidence: float) -> bool:
        """Whether a stream that is so sure at exit number `index` leaves there."""

    def counts(self, layers: int, under_way: int) -> Mapping[str, float]:
        """Of a token that ran so many layers while so many streams were under way."""


class EarlyExits:
    """Brings streams to their next tokens, a pass of a segment at a time.

    Args:
        executor: holds the model and its exits.
        rule: decides who leaves.
        segments: chooses what runs next.
        measure: how confidence is measured; by the exit heads themselves where it is None.
        decisions: sees each confidence, and may overrule it.
    """

    def __init__(
        self,
        executor: Executor,
        rule: LeavingRule,
        segments: SegmentChoice,
        *,
        measure: Measure | None = None,
        decisions: DecisionHook | None = None,
    ) -> None:
        self.exits, self.rule = executor.exits, rule
        self._executor, self._segments = executor, segments
        self._measure, self._decisions = measure, decisions
        self._depths = depths(executor)

    def reset(self) -> None:
        """Forget what segments have run."""
        self._segments.reset()

    def run(self, streams: Sequence[Stream]) -> tuple[list[Verdict], Sequence[Stream]]:
        """A pass, unless it is that of the last segment, which is left to the caller.

        Args:
            streams: all that are under way, at least one.

        Returns:
            The tokens of the streams that left, and the streams that wait for the last segment now:
            one of the two is empty.
        """
        queues: list[list[Stream]] = [[] for _ in self._depths]
        for stream in streams:
            queues[stream.done.count(len(stream.tokens))].append(stream)
        index = self._segments.choose([len(queue) for queue in queues])
        inside = queues[index]
        # before segment 0 nothing is owed, but a boundary forgets its oldest position
        most = 0 if index else RING - 1
        if any(len(stream.tokens) - 1 - stream.done[-1] > most for stream in inside):
            self._fill(streams)
        if index == len(self.exits):
            return [], inside
        return self._try_exit(inside, index), []

    def _fill(self, streams: Sequence[Stream]) -> None:
        """Keys and values of all that is owed, the tokens under way apart."""
        for index in range(len(self.exits), 0, -1):
            spans: list[Span] = []
            for stream in streams:
                start, end = stream.done[index], min(stream.done[index - 1], len(stream.tokens) - 1)
                if start < end:
                    spans.append((stream, start, end))
                    stream.done[index:] = [end] * (len(self._depths) - index)
            if spans:
                self._executor.fill(index, rows_of(spans))

    def _try_exit(self, inside: Sequence[Stream], index: int) -> list[Verdict]:
        """Run segment `index`, and let those leave that are sure."""
        rows = rows_of(enter(inside, index, self._depths[index]))
        if self._measure is None:
            every = np.arange(len(inside), dtype=np.int32)
            tokens, found = self._executor.advance(index, rows, every)
        else:
            self._executor.segment(index, rows)
            tokens, found = [], list(self._measure(index, rows))
        if self._decisions is not None:
            told = tokens or [-1] * len(inside)
            found = [
                self._decisions.confidence(stream, index, token, confidence)
                for stream, token, confidence in zip(inside, told, found, strict=True)
            ]
        left = [
            row
            for row, (stream, confidence) in enumerate(zip(inside, found, strict=True))
            if self.rule.passes(stream, index, confidence)
        ]
        if not left:
            return []
        best = [tokens[row] for row in left] if tokens else []
        chosen = self._tokens([inside[row] for row in left], index, best)
        return [
            Verdict(inside[row], len(inside[row].tokens) - 1, [token])
            for row, token in zip(left, chosen, strict=True)
        ]

    def _tokens(self, left: Sequence[Stream], index: int, best: Sequence[int]) -> Sequence[int]:
        """The next token of each stream that leaves: the exit's best one, or drawn from its logits.
        `best`: of each, where the measure has found it."""
        drawn = [row for row, stream in enumerate(left) if stream.sampling.temperature > 0]
        if not drawn and best:
            return best
        rows = _last(left)
        found = list(best) if best else self._executor.exit_head(index, rows)[0]
        if drawn:
            some = _last([left[row] for row in drawn])
            draws = Draws(left[row].sampling for row in drawn)
            places = some.positions + np.int32(1)
            tokens, _ = draws.choose(self._executor.logits(some, index), places)
            for row, token in zip(drawn, tokens, strict=True):
                found[row] = token
        return found


def _last(streams: Sequence[Stream]) -> StepRows:
    """The last token of each."""
    return rows_of([(stream, len(stream.tokens) - 1, len(stream.tokens)) for stream in streams])
