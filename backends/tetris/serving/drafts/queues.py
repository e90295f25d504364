"""Tokens before stages that all of them go through: who leaves early lets the next one begin."""

from __future__ import annotations

import math

import numpy as np

from backends.engine.executors.base import RING
from backends.engine.passes import rows_of
from backends.engine.sampling import TokenSampling
from backends.engine.streams import Stream
from backends.tetris.serving.jobs import UNASKED, StageJob
from backends.tetris.serving.prompt_queues import Assigned, PromptQueues
from backends.tetris.serving.staged import DraftedStream, RunSpan

MOST_DRAFTS = RING - 1
"""So that no state is written over that a stage has yet to read."""


class DraftQueues(PromptQueues[DraftedStream]):
    """Each worker runs, of every stream that is its own, what the stage before has run and it has
    not; the first stage whatever is drafted. Arguments as for `PromptQueues`.
    """

    def wait_for(self, stage: int, one: DraftedStream) -> None:
        """Nothing to do: what waits is what has not been run."""

    def done(self, worker: int) -> Assigned:
        """Book what a worker has done, as far as it still holds."""
        assigned, stage = super().done(worker), self.stage_of[worker]
        for span in assigned.spans:
            del span.one.at_work[stage]
            span.one.told.pop(stage, None)
            if span.end > span.start:
                span.one.stream.done[stage] = span.end
        return assigned

    def put_back(self, worker: int) -> Assigned:
        """A worker has done nothing of what it was to do."""
        assigned, stage = super().put_back(worker), self.stage_of[worker]
        for span in assigned.spans:
            del span.one.at_work[stage]
            span.one.checks[stage] -= span.asked
        return assigned

    def _staged(self, stream: Stream) -> DraftedStream:
        return DraftedStream(stream)

    def _tokens(self, worker: int) -> Assigned | None:
        stage = self.stage_of[worker]
        spans = [span for one in self.owned_by(worker) if (span := self._span(stage, one))]
        rows = sum(span.rows for span in spans)
        if self._holds_back(worker, rows) or not spans:
            return None
        return Assigned(self._pass(stage, spans), spans=spans)

    def _span(self, stage: int, one: DraftedStream) -> RunSpan | None:
        """What the stage may run of a stream; None where that is nothing."""
        stream = one.stream
        if len(stream.tokens) == one.first:
            return None
        start = stream.done[stage]
        end = stream.done[stage - 1] if stage else len(stream.tokens)
        return RunSpan(one, start, end) if start < end else None

    def _may_come(self, worker: int) -> bool:
        """Whether anything is under way before its stage."""
        return any(
            before in one.at_work or self._span(before, one)
            for one in self.owned_by(worker)
            for before in range(self.stage_of[worker])
        )

    def _pass(self, stage: int, spans: list[RunSpan]) -> StageJob:
        rows = rows_of([(span.one.stream, span.start, span.end) for span in spans])
        is_last = stage == self._count - 1
        asked: list[int] = []
        bounds: list[float] = []
        sampling: list[TokenSampling] = []
        at = 0
        for span in spans:
            one, stream = span.one, span.one.stream
            one.at_work[stage] = span
            first, at = at, at + span.rows
            if is_last:
                asked += range(first, at)
                bounds += [UNASKED] * (at - first)
            elif span.end == len(stream.tokens) and stream.room(MOST_DRAFTS) > 0:
                span.asked = True
                one.checks[stage] += 1
                asked.append(at - 1)
                bounds.append(self._bound(stage, one))
            sampling += [stream.sampling] * (len(asked) - len(sampling))
        return StageJob(
            rows,
            source="ring" if stage else "tokens",
            target=None if is_last else "ring",
            asked=np.array(asked, np.int32) if asked else None,
            bounds=tuple(bounds),
            sampling=tuple(sampling),
        )

    def _bound(self, stage: int, one: DraftedStream) -> float:
        """What the model's confidence has to exceed: whatever it is, where it does not count."""
        bound = self._rule.bound(one.stream, stage)
        if self._replayed is None:
            return bound
        if stage not in one.told:  # of a stage that died it was asked before
            one.told[stage] = self._replayed.confidence(one.stream, stage, -1, 0.0)
        return UNASKED if one.told[stage] > bound else math.inf
