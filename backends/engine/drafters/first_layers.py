"""LayerSkip's drafts (Elhoushi et al., 2024): the model's first layers and its own head guess on
from their own guesses, without asking how sure they are; the layers' caches serve both.

The other layers verify the guesses of all streams at once. That is what the method pays by: as in
`drafters.exits` a stream whose guesses are complete could go on alone, but streams that came at
other times are complete at other times, and then nearly every step would read the other layers.
"""

from __future__ import annotations

from collections.abc import Sequence

from backends.engine.decisions import DecisionHook
from backends.engine.drafters.exits import ExitDrafter, PredictionPolicy
from backends.engine.executors.base import Executor
from backends.engine.streams import Stream

ALWAYS = -1.0
"""A threshold below every probability."""


class FirstLayers(ExitDrafter):
    """A `Drafter` at one exit, which all streams leave as often as there is room.

    Args:
        executor: holds the model, whose first segment drafts.
        max_drafts: most drafts of a stream at a time.
        decisions: sees each draft, and may end a stream's.

    Raises:
        ValueError: for an executor with more exits than one.
    """

    def __init__(
        self, executor: Executor, max_drafts: int, decisions: DecisionHook | None = None
    ) -> None:
        super().__init__(executor, PredictionPolicy((ALWAYS,), max_drafts), decisions)

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """All streams together, a token of each at a time; where none has room, none is begun."""
        drafting = [s for s in streams if s.room(self.max_drafts) > 0] and streams
        while drafting:
            complete = {stream.slot for stream in self._try_exit(drafting, 0, may_draft=True)}
            drafting = [stream for stream in drafting if stream.slot not in complete]
        return streams
