"""What waits before each stage, and what a stage is given when it is idle."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from backends.engine.decisions import DecisionHook
from backends.engine.executors.base import RING
from backends.engine.passes import Span, ends_of, rows_of
from backends.engine.streams import Stream
from backends.own.exits.rule import SequenceRule
from backends.tetris.serving.jobs import StageJob
from backends.tetris.serving.staged import StagedStream

MOST_OWED = RING // 2
"""Positions of a stream; a stage with nothing else to do fills then."""


@dataclass(slots=True)
class Assigned:
    """What a stage is doing."""

    job: StageJob
    inside: list[StagedStream] = field(default_factory=list)
    """Streams whose newest position is one of its rows."""
    piece: list[Span] | None = None
    """Of prompts."""
    filled: list[tuple[StagedStream, int]] = field(default_factory=list)
    """Streams, and up to which position it fills them."""


class StageQueues:
    """Tokens and prompts before each of `count` stages.

    Args:
        rule: who leaves where.
        slots: streams under way at most.
        batch: rows that a stage behind a ramp waits for as long as more may come, and so many
            times at most.
        prefill_tokens: of a piece of prompts, at most.
        whole_prompts: no prompt is cut; a longer one is a piece by itself.
        replayed: decides confidences beforehand; None where the model does.
    """

    def __init__(
        self,
        count: int,
        rule: SequenceRule,
        *,
        slots: int,
        batch: int,
        prefill_tokens: int,
        whole_prompts: bool = False,
        replayed: DecisionHook | None = None,
    ) -> None:
        self._count, self._rule, self._slots = count, rule, slots
        self._batch, self._prefill_tokens, self._replayed = batch, prefill_tokens, replayed
        self._whole_prompts = whole_prompts
        self.streams: dict[str, StagedStream] = {}
        """Those with a slot, by id."""
        self._released: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self.clear()

    def clear(self) -> None:
        """Forget every stream."""
        for one in self.streams.values():
            self._release(one)
        self.streams.clear()
        self._new: deque[Stream] = deque()
        self._half_booked: StagedStream | None = None
        self._ready: list[list[StagedStream]] = [[] for _ in range(self._count)]
        self._working: list[int] = [0] * self._count
        """Streams in the batch that each stage is running."""
        self._pieces: list[list[Span] | None] = [None] * self._count
        self._kept_free: list[bool] = [True] * self._count
        """Whether the room for a piece behind each stage is free."""
        self._tokens_next = [False] * self._count
        self._held_back = [0] * self._count
        """How often each stage could have run those who wait and waited for more."""
        self._free = list(range(self._slots))[::-1]

    def add(self, stream: Stream) -> None:
        """Queue a stream."""
        self._new.append(stream)

    def wait_for(self, stage: int, one: StagedStream) -> None:
        """A stream's newest position waits before a stage."""
        self._ready[stage].append(one)

    def leave(self, one: StagedStream) -> None:
        """A stream is over."""
        del self.streams[one.stream.id]
        self._free.append(one.stream.slot)
        self._release(one)

    def take(self, stage: int) -> Assigned | None:
        """What an idle stage does next: prompts and tokens by turns."""
        found = None if self._tokens_next[stage] else self._piece(stage)
        if found is None:
            found = self._batch_of(stage) or self._piece(stage) or self._filling(stage)
        if found is None:
            return None
        self._tokens_next[stage] = found.piece is not None
        if not found.filled and self._owes_much(stage):
            # nobody of this batch owes, and who does would wait before the first stage for as long
            # as there are others
            self._add_fills(stage, found)
        self._working[stage] = len(found.inside)
        released, self._released[stage] = self._released[stage], []
        found.job = replace(found.job, released=tuple(released))
        return found

    def done(self, stage: int, assigned: Assigned) -> None:
        """Book what a stage has done."""
        self._working[stage] = 0
        for one, end in assigned.filled:
            one.stream.done[stage] = end
        for one in assigned.inside:
            one.stream.done[stage] = one.newest + 1
        for stream, _, end in assigned.piece or ():
            stream.done[stage] = end
        if assigned.piece is not None and stage:
            self._kept_free[stage - 1] = True

    def go_on(self, stage: int, piece: list[Span]) -> None:
        """A piece of prompts waits behind a stage that has done it."""
        self._pieces[stage + 1] = piece

    def put_back(self, stage: int, assigned: Assigned) -> None:
        """A stage has done nothing of it."""
        self._working[stage] = 0
        self._ready[stage] = assigned.inside + self._ready[stage]
        self._released[stage] = [*assigned.job.released, *self._released[stage]]
        if assigned.piece is not None:
            self._pieces[stage] = assigned.piece
            self._kept_free[stage] = True

    def _release(self, one: StagedStream) -> None:
        for released in self._released:
            released.append((one.stream.slot, one.newest + 1))

    # Tokens

    def _batch_of(self, stage: int) -> Assigned | None:
        """The streams that are fused for a pass."""
        waiting = self._ready[stage]
        inside = waiting
        if stage == 0:
            inside = [one for one in waiting if one.has_room()]
        elif len(waiting) < self._batch and self._may_come(stage):
            self._held_back[stage] += bool(waiting)
            if self._held_back[stage] <= self._batch:
                return None
        self._held_back[stage] = 0
        if not inside:
            return None
        kept = set(inside)
        self._ready[stage] = [one for one in waiting if one not in kept]
        found = Assigned(self._pass(stage, inside), list(inside))
        if any(one.owed(stage) for one in inside):
            self._add_fills(stage, found)
        return found

    def _may_come(self, stage: int) -> bool:
        """Whether a stream before this stage may come as far without anybody of this queue."""
        return any(self._ready[before] or self._working[before] for before in range(stage))

    def _pass(self, stage: int, inside: Sequence[StagedStream]) -> StageJob:
        rows = rows_of([(one.stream, one.newest, one.newest + 1) for one in inside])
        is_last = stage == self._count - 1
        job = StageJob(
            rows, source="ring" if stage else "tokens", target=None if is_last else "ring"
        )
        if is_last:
            bounds = [-math.inf] * len(inside)
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
        return -math.inf if one.overruled > bound else math.inf

    def _filling(self, stage: int) -> Assigned | None:
        if not self._owes_much(stage):
            return None
        found = Assigned(StageJob())
        self._add_fills(stage, found)
        return found

    def _owes_much(self, stage: int) -> bool:
        return any(len(one.owed(stage)) >= MOST_OWED for one in self.streams.values())

    def _add_fills(self, stage: int, assigned: Assigned) -> None:
        """All that the stage owes goes with it, for all streams."""
        spans: list[Span] = []
        stages: list[int] = []
        for one in self.streams.values():
            owed = one.owed(stage)
            if owed:
                spans.append((one.stream, owed.start, owed.stop))
                stages += one.left[owed.start - one.first : owed.stop - one.first]
                assigned.filled.append((one, owed.stop))
        filled_from = np.array(stages, np.int32)
        assigned.job = replace(assigned.job, fills=rows_of(spans), filled_from=filled_from)

    # Prompts

    def _piece(self, stage: int) -> Assigned | None:
        """The piece of prompts that waits before a stage, where there is room behind it."""
        is_last = stage == self._count - 1
        if not is_last and not self._kept_free[stage]:
            return None
        piece, self._pieces[stage] = self._pieces[stage], None
        if piece is None and stage == 0:
            piece = self._cut()
        if not piece:
            return None
        job = StageJob(rows_of(piece), is_prompt=True, source="prompt" if stage else "tokens")
        if not is_last:
            self._kept_free[stage] = False
            return Assigned(replace(job, target="prompt"), piece=piece)
        over = [end == len(stream.prompt) for stream, _, end in piece]
        ended = [stream for (stream, _, _), ends in zip(piece, over, strict=True) if ends]
        job = replace(
            job,
            asked=ends_of(piece)[over] if ended else None,
            bounds=tuple([-math.inf] * len(ended)),
            sampling=tuple(stream.sampling for stream in ended),
        )
        return Assigned(job, piece=piece)

    def _cut(self) -> list[Span]:
        """Prompt tokens in order of arrival."""
        spans: list[Span] = []
        left = self._prefill_tokens
        while left > 0 and (self._half_booked or (self._new and self._free)):
            one = self._half_booked = self._half_booked or self._enter()
            start, end = one.booked, min(one.first, one.booked + left)
            if self._whole_prompts and end < one.first:
                if spans:
                    break
                end = one.first
            spans.append((one.stream, start, end))
            one.booked = end
            left -= end - start
            if end == one.first:
                self._half_booked = None
        return spans

    def _enter(self) -> StagedStream:
        """The first new stream, in a slot."""
        stream = self._new.popleft()
        stream.slot = self._free.pop()
        stream.tokens = list(stream.prompt)
        stream.done = [0] * self._count
        one = self.streams[stream.id] = StagedStream(stream)
        return one
