"""AdaDecode's drafts: confident exit heads predict the next token early, the layers after them run
later, together with those of the tokens that follow.

AdaDecode (Wei et al., ICML 2025, Algorithm 1), in the form of contiguous frontiers: each segment of
layers has processed a prefix of the sequence, ``done[0] >= done[1] >= ...``, and what a deeper
segment has not seen yet is a contiguous range, whose hidden states wait in the boundary before it.
The last segment verifies all of them at once.

Unlike Algorithm 1 as printed, every pending range is emptied once processed, not that of the last
layer alone, a stop token is never predicted early, and a sampled token is compared with the
prediction instead of being mixed into its probability, which is exact at every temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backends.engine.decisions import DecisionHook
from backends.engine.executors.base import Executor
from backends.engine.passes import depths, enter, is_untouched, numbers, rows_of
from backends.engine.streams import Stream


@dataclass(frozen=True, slots=True)
class PredictionPolicy:
    """When to predict early."""

    gammas: tuple[float, ...]
    """A prediction counts when its probability is above that of its exit."""
    max_drafts: int = 5
    """Most early predictions of a sequence that wait for verification."""
    max_batch: int | None = None
    """Nothing is predicted early while more streams are under way: in a batch the deepest one of
    each step decides, and what the others drafted costs rows. None: no such limit."""


class ExitDrafter:
    """A `Drafter` inside the model: runs its segments up to the last.

    Args:
        executor: holds the model and its exits.
        policy: a threshold for each of them.
        decisions: sees each confidence, and may overrule it.

    Raises:
        ValueError: for a policy that does not fit the executor.
    """

    def __init__(
        self,
        executor: Executor,
        policy: PredictionPolicy,
        decisions: DecisionHook | None = None,
    ) -> None:
        self.exits, self.max_drafts = executor.exits, policy.max_drafts
        if len(policy.gammas) != len(self.exits):
            raise ValueError(f"{len(policy.gammas)} thresholds for {len(self.exits)} exits")
        self._executor, self._policy, self._decisions = executor, policy, decisions
        self._depths = depths(executor)
        self._names = [
            tuple(f"{name}_layer_{layer}" for name in ("checks", "exits", "accepted"))
            for layer in self.exits
        ]
        self._taken: list[list[int]] = [[] for _ in range(executor.slots)]
        """By slot: the exit that each waiting draft came from, by number."""
        self._checks: list[list[int]] = [[] for _ in range(executor.slots)]
        """By slot, since the last verification: the exits whose heads were asked."""

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """Each stream by one token; what no exit was sure of has come to the last segment. Where
        nothing is to be predicted early, and nothing waits, all segments run at once."""
        may_draft = not self.is_over(len(streams))
        if not may_draft and all(map(is_untouched, streams)):
            return streams
        for index in range(len(self.exits)):
            streams = self._try_exit(streams, index, may_draft)
            if not streams:
                break
        return streams

    def is_over(self, under_way: int) -> bool:
        """Whether so many streams are too many to predict early."""
        most = self._policy.max_batch
        return most is not None and under_way > most

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """Its counts of early predictions, and of checks, exits and accepted ones by layer."""
        taken, checks = self._taken[stream.slot], self._checks[stream.slot]
        counts: dict[str, float] = {"early_predictions": len(taken)}
        for index, (asked, left, kept) in enumerate(self._names):
            if times := checks.count(index):
                counts[asked] = times
                counts[left] = taken.count(index)
                counts[kept] = taken[:accepted].count(index)
        taken.clear()
        checks.clear()
        return counts

    def reset(self) -> None:
        """Forget every stream."""
        for kept in (*self._taken, *self._checks):
            kept.clear()

    def _try_exit(self, inside: Sequence[Stream], index: int, may_draft: bool) -> Sequence[Stream]:
        """Run segment `index`; return the streams that go on to the next."""
        spans = enter(inside, index, self._depths[index])
        wanted, asked, end = [], [], 0
        for stream, start, stop in spans:
            end += stop - start
            if may_draft and stream.room(self.max_drafts) > 0:
                asked.append(stream)
                wanted.append(end - 1)
        tokens, confidences = self._executor.advance(index, rows_of(spans), numbers(wanted))
        gamma, left = self._policy.gammas[index], False
        for stream, token, confidence in zip(asked, tokens, confidences, strict=True):
            self._checks[stream.slot].append(index)
            if self._decisions is not None:
                confidence = self._decisions.confidence(stream, index, token, confidence)
            # running on at a stop token costs as much as verifying it, and saves a special case
            if confidence > gamma and token >= 0 and token not in stream.stops:
                stream.tokens.append(token)
                self._taken[stream.slot].append(index)
                left = True
        if not left:
            return inside
        return [stream for stream, _, stop in spans if len(stream.tokens) == stop]
