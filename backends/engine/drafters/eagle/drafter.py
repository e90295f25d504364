"""Drafts from an EAGLE-3 head.

After "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test"
(Li et al. 2025, arXiv 2503.01840), section 3.1, with one chain of drafts instead of a tree. At a
position that the target has verified the head reads the target's states; after a draft it reads its
own output in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from backends.engine.drafters.chains import Chains, far_behind
from backends.engine.draws import Draws
from backends.engine.executors.base import Executor, Int32, StepRows
from backends.engine.executors.stepwise import continue_by_steps
from backends.engine.passes import rows_of
from backends.engine.streams import Stream

AT_ONCE = 256
"""Most positions that one call of a head computes."""
FIRST = 1
"""The first position that a head has a row for: it reads the state before it."""


class EagleExecutor(Executor, Protocol):
    """Runs a head beside its target, which has the same slots.

    Rows that `catch_up` and `continued` are given are positions of the text from `FIRST` on, as a
    draft model's would be: the token there, and the target's states of the position before.
    """

    def catch_up(self, rows: StepRows) -> None:
        """Compute the keys and values of positions that the target has verified, any number."""


class _BySteps(EagleExecutor, Protocol):
    _from_source: bool
    """Whether the next pass begins with the target's states, and not with the head's outputs."""


class StepwiseEagle:
    """To inherit from before an executor whose passes, each of which sets `_from_source` back,
    begin with either. A row lies at the position of the state that it reads, one before that of
    its token."""

    def read(self: _BySteps, rows: StepRows) -> None:
        """Rows after the head's own outputs; what they cost is all that is asked of it."""
        self.segment(0, rows)

    def catch_up(self: _BySteps, rows: StepRows) -> None:
        """See `EagleExecutor.catch_up`."""
        self._from_source = True
        self.segment(0, states_before(rows))

    def continued(
        self: _BySteps,
        rows: StepRows,
        wanted: Int32,
        most: Int32,
        threshold: float,
        stops: Int32,
        draws: Draws | None = None,
    ) -> list[list[int]]:
        """See `Executor.continued`."""
        self._from_source = True
        return continue_by_steps(
            self, states_before(rows), wanted, most, threshold, stops, draws, ahead=2
        )


class EagleDrafts:
    """A `Drafter` with a head that reads the target's states.

    Its cache at the position of a draft was computed from its own output, so that all positions
    since the last verification are computed again, from the target's states.

    Args:
        head: beside the executor of the target, whose states it finds.
        max_drafts: most drafts of a stream at a time.
        threshold: no draft follows one that the head held less probable than this.
    """

    exits: tuple[int, ...] = ()

    def __init__(self, head: EagleExecutor, max_drafts: int, threshold: float) -> None:
        self.max_drafts = max_drafts
        self._head, self._chains = head, Chains(head, threshold)
        self._done = [FIRST] * head.slots
        """By slot: positions that the head has computed from the target's states."""

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """All streams together, a token of each at a time."""
        if not self.max_drafts:
            return streams
        drafting = [s for s in streams if s.room(self.max_drafts) > 0]
        if spans := far_behind(drafting, self._done):
            self._head.catch_up(rows_of(spans))
        for some in self._groups(drafting):
            ends = [len(stream.tokens) for stream in some]
            self._chains.extend(some, self.max_drafts, self._done)
            for stream, end in zip(some, ends, strict=True):
                self._done[stream.slot] = end
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """A stream that is over leaves its slot; what drafts left in the cache is computed anew."""
        if stream.finished is not None:
            self._head.release(stream.slot, len(stream.tokens))
            self._done[stream.slot] = FIRST
        return {}

    def reset(self) -> None:
        """Forget every stream."""
        for slot, done in enumerate(self._done):
            if done > FIRST:
                self._head.release(slot, done)
        self._done = [FIRST] * self._head.slots

    def _groups(self, streams: Sequence[Stream]) -> Iterator[list[Stream]]:
        """As many streams together as one call takes."""
        some: list[Stream] = []
        rows = 0
        for stream in streams:
            own = len(stream.tokens) - self._done[stream.slot]
            if rows + own > AT_ONCE:
                yield some
                some, rows = [], 0
            some.append(stream)
            rows += own
        if some:
            yield some


def states_before(rows: StepRows) -> StepRows:
    """The rows' tokens at the positions whose states they are read with."""
    return StepRows(rows.slots, rows.positions - np.int32(1), rows.tokens)
