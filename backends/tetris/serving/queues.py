"""What waits before each worker, and what a worker is given when it is idle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from backends.engine.executors.base import RING
from backends.engine.passes import Span, rows_of
from backends.engine.streams import Stream
from backends.tetris.serving.jobs import UNASKED, StageJob
from backends.tetris.serving.prompt_queues import Assigned, PromptQueues
from backends.tetris.serving.staged import StagedStream

MOST_OWED = RING // 2
"""Positions of a stream; a worker with nothing else to do fills then."""


class StageQueues(PromptQueues[StagedStream]):
    """Tokens that leave behind a stage for good, and prompts. Arguments as for `PromptQueues`."""

    def clear(self) -> None:
        """Forget every stream."""
        super().clear()
        self._ready: list[list[StagedStream]] = [[] for _ in self.stage_of]

    def wait_for(self, stage: int, one: StagedStream) -> None:
        """A stream's newest position waits before a stage."""
        self._ready[one.workers[stage]].append(one)

    def done(self, worker: int) -> Assigned:
        """Book what a worker has done."""
        assigned, stage = super().done(worker), self.stage_of[worker]
        for one, end in assigned.filled:
            one.stream.done[stage] = end
        for one in assigned.inside:
            one.stream.done[stage] = one.newest + 1
        return assigned

    def put_back(self, worker: int) -> Assigned:
        """A worker has done nothing of what it was to do."""
        assigned = super().put_back(worker)
        self._ready[worker] = assigned.inside + self._ready[worker]
        return assigned

    def _staged(self, stream: Stream) -> StagedStream:
        return StagedStream(stream)

    def take(self, worker: int) -> Assigned | None:
        """See `PromptQueues.take`; fills go with it."""
        found = super().take(worker)
        if found is not None and not found.filled and self._owes_much(worker):
            # nobody of this batch owes, and who does would wait before the first stage for as long
            # as there are others
            self._add_fills(worker, found)
        return found

    def _tokens(self, worker: int) -> Assigned | None:
        """The streams that are fused for a pass."""
        waiting, stage = self._ready[worker], self.stage_of[worker]
        inside = waiting
        if stage == 0:
            inside = [one for one in waiting if one.has_room()]
        if self._holds_back(worker, len(waiting)) or not inside:
            return None
        kept = set(inside)
        self._ready[worker] = [one for one in waiting if one not in kept]
        found = Assigned(self._pass(stage, inside), list(inside))
        if any(one.owed(stage) for one in inside):
            self._add_fills(worker, found)
        return found

    def _may_come(self, worker: int) -> bool:
        """Whether a stream before its stage may come as far without anybody of this queue."""
        stage = self.stage_of[worker]
        before = range(self.workers[stage].start)
        running = (self.at_work[other].inside for other in before if other in self.at_work)
        found = itertools.chain(*running, *(self._ready[other] for other in before))
        return any(one.workers[stage] == worker for one in found)

    def _pass(self, stage: int, inside: Sequence[StagedStream]) -> StageJob:
        rows = rows_of([(one.stream, one.newest, one.newest + 1) for one in inside])
        is_last = stage == self._count - 1
        job = StageJob(
            rows, source="ring" if stage else "tokens", target=None if is_last else "ring"
        )
        if is_last:
            bounds = [UNASKED] * len(inside)
        elif self._rule.layers:
            bounds = [self._bound(stage, one) for one in inside]
        else:
            return job
        return replace(
            job,
            asked=np.arange(len(inside), dtype=np.int32),
            bounds=tuple(bounds),
            sampling=tuple(one.stream.sampling for one in inside),
        )

    def _bound(self, stage: int, one: StagedStream) -> float:
        """What the model's confidence has to exceed: whatever it is, where it does not count."""
        bound = self._rule.bound(one.stream, stage)
        if self._replayed is None:
            return bound
        if one.overruled is None:  # of a stage that died it was asked before
            one.overruled = self._replayed.confidence(one.stream, stage, -1, 0.0)
        return UNASKED if one.overruled > bound else math.inf

    def _filling(self, worker: int) -> Assigned | None:
        if not self._owes_much(worker):
            return None
        found = Assigned(StageJob())
        self._add_fills(worker, found)
        return found

    def _owes_much(self, worker: int) -> bool:
        stage = self.stage_of[worker]
        return any(len(one.owed(stage)) >= MOST_OWED for one in self.owned_by(worker))

    def _add_fills(self, worker: int, assigned: Assigned) -> None:
        """All that the worker owes goes with it, for all its streams."""
        stage = self.stage_of[worker]
        spans: list[Span] = []
        stages: list[int] = []
        for one in self.owned_by(worker):
            owed = one.owed(stage)
            if owed:
                spans.append((one.stream, owed.start, owed.stop))
                stages += one.left[owed.start - one.first : owed.stop - one.first]
                assigned.filled.append((one, owed.stop))
        filled_from = np.array(stages, np.int32)
        assigned.job = replace(assigned.job, fills=rows_of(spans), filled_from=filled_from)
