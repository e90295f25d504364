"""Drafts from the model itself, with some attention and MLP sublayers left out.

Self-speculative decoding (Zhang et al., ACL 2024, 'Draft & Verify'). The drafts' keys and values go
into the model's own cache, at positions that are not verified yet: a draft attends to verified
positions as all layers left them and, in the layers that it runs, to the drafts before it. The
verification computes these positions again in all layers and writes over them, so that nothing is
copied and nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from backends.engine.drafters.chains import Chains
from backends.engine.executors.base import Executor
from backends.engine.streams import Stream
from backends.engine.sublayers.sets import Sublayers


class SublayerDrafts:
    """A `Drafter` over the model's own executor.

    Args:
        executor: holds the model, without exits.
        left_out: what drafting leaves out.
        max_drafts: most drafts of a stream at a time.
        threshold: no draft follows one that was held less probable than this.

    Raises:
        EngineError: for a set that the model has not got, and for all of its sublayers.
    """

    exits: tuple[int, ...] = ()

    def __init__(
        self, executor: Executor, left_out: Sublayers, max_drafts: int, threshold: float
    ) -> None:
        self.max_drafts = max_drafts
        self._executor, self._threshold = executor, threshold
        self._done = [0] * executor.slots
        """By slot: positions that drafting has processed, beyond those that all layers have."""
        self.leave_out(left_out)

    def leave_out(self, left_out: Sublayers) -> None:
        """Draft with another set from now on; not between drafts and their verification."""
        self.left_out = left_out
        self._chains = Chains(self._executor.skipping(left_out), self._threshold)
        self._layers = self._executor.architecture.layers - len(left_out) / 2

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """All streams together, a token of each at a time."""
        drafting = [s for s in streams if s.room(self.max_drafts) > 0]
        for stream in drafting:
            self._done[stream.slot] = stream.done[0]
        self._chains.extend(drafting, self.max_drafts, self._done)
        for stream in drafting:
            stream.layers_run += (self._done[stream.slot] - stream.done[0]) * self._layers
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """What all layers have processed is all that counts, and the stream knows it."""
        return {}

    def reset(self) -> None:
        """Nothing is kept from one verification to the next."""
