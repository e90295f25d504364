"""Drafts from a smaller model with the same tokens (Leviathan et al., 2023; Chen et al., 2023).

How many depends on how sure it is: a stream drafts on while the draft model gives its own token at
least a certain probability, as AdaDecode's paper does for its baseline (appendix C: at most 12
drafts, probability 0.6).
"""

from __future__ import annotations

from collections.abc import Sequence

from backends.engine.drafters.chains import Chains, far_behind
from backends.engine.executors.base import Executor
from backends.engine.passes import rows_of
from backends.engine.streams import Stream


class DraftModel:
    """A `Drafter` with an executor of its own, which has a slot for each of the model's.

    Its cache follows the model's: a position is computed from verified tokens or from a draft, and
    computed again where a draft fell.

    Args:
        executor: holds the draft model, without exits.
        max_drafts: most drafts of a stream at a time.
        threshold: no draft follows one that the draft model held less probable than this.
    """

    exits: tuple[int, ...] = ()

    def __init__(self, executor: Executor, max_drafts: int, threshold: float) -> None:
        self.max_drafts = max_drafts
        self._executor, self._chains = executor, Chains(executor, threshold)
        self._done = [0] * executor.slots
        """By slot: positions that the draft model has processed."""

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """All streams together, a token of each at a time."""
        if not self.max_drafts:
            return streams
        drafting = [s for s in streams if s.room(self.max_drafts) > 0]
        if spans := far_behind(drafting, self._done):
            self._executor.read(rows_of(spans))
        self._chains.extend(drafting, self.max_drafts, self._done)
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """What was computed from drafts that fell is forgotten."""
        slot, processed = stream.slot, len(stream.tokens) - 1
        self._done[slot] = min(self._done[slot], processed)
        if stream.finished is not None:
            self._executor.release(slot, self._done[slot])
            self._done[slot] = 0
        return {}

    def reset(self) -> None:
        """Forget every stream."""
        for slot, done in enumerate(self._done):
            if done:
                self._executor.release(slot, done)
        self._done = [0] * self._executor.slots
