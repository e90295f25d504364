"""AdaDecode's drafts with a queue before each segment, so that passes find company.

In lockstep (`backends.engine.drafters.exits`) each call moves every stream by one token, and those
that no exit was sure of go on alone: the more streams, the more passes over few of their rows. Here
a stream waits before its next segment until the policy runs it, and those that left early have
begun their next tokens meanwhile. What is predicted, and the text, are the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from backends.engine.decisions import DecisionHook
from backends.engine.drafters.exits import ExitDrafter, PredictionPolicy
from backends.engine.executors.base import Executor
from backends.engine.segments.policy import FillPolicy
from backends.engine.streams import Stream


class ReadyDrafter(ExitDrafter):
    """A `Drafter` that runs whichever segment has enough streams ready.

    Args:
        executor: holds the model and its exits.
        policy: a threshold for each of them; beyond its `max_batch` nothing is predicted early.
        fills: chooses the next segment.
        decisions: sees each confidence, and may overrule it.

    Raises:
        ValueError: for a policy that does not fit the executor.
    """

    def __init__(
        self,
        executor: Executor,
        policy: PredictionPolicy,
        fills: FillPolicy,
        decisions: DecisionHook | None = None,
    ) -> None:
        super().__init__(executor, policy, decisions)
        self._fills = fills
        self._before = [0] * executor.slots
        """By slot, the segment that its stream waits for."""

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """Passes of one queue each, until it is the last segment's turn: those before it."""
        if self.is_over(len(streams)):
            return self._come_in(streams)
        queues: list[list[Stream]] = [[] for _ in range(len(self.exits) + 1)]
        for stream in streams:
            queues[self._before[stream.slot]].append(stream)
        while True:
            index = self._fills.choose([len(queue) for queue in queues], len(streams))
            passing, queues[index] = queues[index], []
            if index == len(self.exits):
                return passing
            further = self._try_exit(passing, index, may_draft=True)
            going = {stream.slot for stream in further}
            for stream in passing:
                after = index + 1 if stream.slot in going else 0
                self._before[stream.slot] = after
                queues[after].append(stream)

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        """See `ExitDrafter.verified`; the stream begins at the first segment."""
        self._before[stream.slot] = 0
        return super().verified(stream, accepted)

    def reset(self) -> None:
        """Forget every stream."""
        super().reset()
        self._before = [0] * len(self._before)

    def _come_in(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        """Without further predictions: those that wait anywhere come to the last segment; where
        there are none, all streams go through all segments at once."""
        inside = [s for s in streams if self._before[s.slot] or s.done[0] != s.done[-1]]
        if not inside:
            return streams
        for index in range(len(self.exits)):
            here = [stream for stream in inside if self._before[stream.slot] <= index]
            if here:
                self._try_exit(here, index, may_draft=False)
        return inside
