"""What waits before workers in every pipeline: prompts, which go through in pieces, and slots."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from backends.engine.decisions import DecisionHook
from backends.engine.passes import Span, ends_of, rows_of
from backends.engine.streams import Stream
from backends.own.exits.rule import SequenceRule
from backends.tetris.pipeline.replicas import hand_overs, numbered
from backends.tetris.serving.jobs import NO_ROOM, ROOMS, UNASKED, StageJob
from backends.tetris.serving.staged import RunSpan, StagedStream

Staged = TypeVar("Staged", bound=StagedStream)
Piece = list[Span]
"""Of prompts, whose streams all go through the same workers."""


@dataclass(slots=True)
class Assigned:
    """What a worker is doing."""

    job: StageJob
    inside: list[StagedStream] = field(default_factory=list)
    """Streams whose newest position is one of its rows."""
    piece: Piece | None = None
    filled: list[tuple[StagedStream, int]] = field(default_factory=list)
    """Streams, and up to which position it fills them."""
    spans: list[RunSpan] = field(default_factory=list)
    """Where every layer runs for every position: those of its rows."""


class PromptQueues(ABC, Generic[Staged]):
    """Prompts before each worker; what their tokens do is a subclass's matter. Of each stage a
    stream belongs to one worker for its whole life: its keys and values are in that one's process.

    Args:
        replicas: workers of each stage.
        rule: who is sure where.
        slots: streams under way at most.
        batch: rows that a worker behind a ramp waits for as long as more may come, and so many
            times at most.
        wait_s: that an idle worker waits for them, at most.
        prefill_tokens: of a piece of prompts, at most.
        whole_prompts: no prompt is cut; a longer one is a piece by itself.
        replayed: decides confidences beforehand; None where the model does.
    """

    def __init__(
        self,
        replicas: Sequence[int],
        rule: SequenceRule,
        *,
        slots: int,
        batch: int,
        prefill_tokens: int,
        wait_s: float = math.inf,
        whole_prompts: bool = False,
        replayed: DecisionHook | None = None,
    ) -> None:
        self._count, self._slots = len(replicas), slots
        self._rule, self._batch, self._replayed = rule, batch, replayed
        self._prefill_tokens, self._whole_prompts = prefill_tokens, whole_prompts
        self._wait_s = wait_s
        self.workers = numbered(replicas)
        """Of each stage."""
        self.stage_of = [stage for stage, count in enumerate(replicas) for _ in range(count)]
        """Of each worker."""
        self.streams: dict[str, Staged] = {}
        """Those with a slot, by id."""
        self.at_work: dict[int, Assigned] = {}
        """By worker."""
        self._links = {pair: number for number, pair in enumerate(hand_overs(replicas))}
        self._released: list[list[tuple[int, int]]] = [[] for _ in self.stage_of]
        self.clear()

    def clear(self) -> None:
        """Forget every stream; nobody is at work."""
        for one in self.streams.values():
            self._release(one)
        self.streams.clear()
        self._new: deque[Stream] = deque()
        self._pieces: list[list[tuple[Piece, int]]] = [[] for _ in self.stage_of]
        """That wait before each worker, and in which room."""
        self._full = set[int]()
        """Rooms that have a piece, or are to have it."""
        self._tokens_next = [False] * len(self.stage_of)
        self._held_back = [0] * len(self.stage_of)
        """How often each worker could have run those who wait and waited for more."""
        self._held_since = [math.inf] * len(self.stage_of)
        """When it began to, by the monotonic clock; infinite where it does not."""
        self._free = list(range(self._slots))[::-1]

    def add(self, stream: Stream) -> None:
        """Queue a stream."""
        self._new.append(stream)

    def leave(self, one: Staged) -> None:
        """A stream is over."""
        del self.streams[one.stream.id]
        self._free.append(one.stream.slot)
        self._release(one)

    def take(self, worker: int) -> Assigned | None:
        """What an idle worker does next: prompts and tokens by turns."""
        self._enter()
        found = None if self._tokens_next[worker] else self._piece(worker)
        if found is None:
            found = self._tokens(worker) or self._piece(worker) or self._filling(worker)
        if found is None:
            return None
        self._tokens_next[worker] = found.piece is not None
        released, self._released[worker] = self._released[worker], []
        found.job = replace(found.job, released=tuple(released))
        self.at_work[worker] = found
        return found

    def done(self, worker: int) -> Assigned:
        """Book what a worker has done."""
        assigned, stage = self.at_work.pop(worker), self.stage_of[worker]
        for stream, _, end in assigned.piece or ():
            stream.done[stage] = end
        self._full.discard(assigned.job.rooms[0])
        return assigned

    def go_on(self, stage: int, piece: Piece, room: int) -> None:
        """A piece of prompts waits in a room behind a stage that has done it."""
        self._pieces[self._first(piece).workers[stage + 1]].append((piece, room))

    def put_back(self, worker: int) -> Assigned:
        """A worker has done nothing of what it was to do."""
        assigned = self.at_work.pop(worker)
        self._released[worker] = [*assigned.job.released, *self._released[worker]]
        if assigned.piece is not None:
            self._pieces[worker].insert(0, (assigned.piece, assigned.job.rooms[0]))
        self._full.discard(assigned.job.rooms[1])
        return assigned

    def owned_by(self, worker: int) -> list[Staged]:
        """The streams that belong to a worker."""
        stage = self.stage_of[worker]
        return [one for one in self.streams.values() if one.workers[stage] == worker]

    def patience_s(self) -> float | None:
        """How long the first idle worker goes on waiting for more rows; None: until they come."""
        idle = (s for worker, s in enumerate(self._held_since) if worker not in self.at_work)
        until_s = min(idle, default=math.inf) + self._wait_s
        return None if until_s == math.inf else max(0.0, until_s - time.monotonic())

    @abstractmethod
    def wait_for(self, stage: int, one: Staged) -> None:
        """A stream's newest position waits before a stage."""

    @abstractmethod
    def _staged(self, stream: Stream) -> Staged:
        """A stream that gets a slot."""

    @abstractmethod
    def _tokens(self, worker: int) -> Assigned | None:
        """Tokens that wait before a worker."""

    @abstractmethod
    def _may_come(self, worker: int) -> bool:
        """Whether more rows may come before a worker without those that wait there."""

    def _filling(self, worker: int) -> Assigned | None:
        """What a worker with nothing else to do does."""
        return None

    def _holds_back(self, worker: int, rows: int) -> bool:
        """Whether a worker before which so many rows wait goes on waiting."""
        if self.stage_of[worker] and rows < self._batch and self._may_come(worker):
            now_s = time.monotonic()
            if rows:
                self._held_back[worker] += 1
                self._held_since[worker] = min(self._held_since[worker], now_s)
            has_patience = now_s - self._held_since[worker] < self._wait_s
            if self._held_back[worker] <= self._batch and has_patience:
                return True
        self._held_back[worker], self._held_since[worker] = 0, math.inf
        return False

    def _release(self, one: Staged) -> None:
        for worker in one.workers:
            self._released[worker].append((one.stream.slot, one.newest + 1))

    def _first(self, piece: Piece) -> Staged:
        return self.streams[piece[0][0].id]

    def _piece(self, worker: int) -> Assigned | None:
        """The first piece of prompts before a worker that has room behind it."""
        stage, waiting = self.stage_of[worker], self._pieces[worker]
        rooms = ((n, self._room(stage, self._first(one))) for n, (one, _) in enumerate(waiting))
        place = next((n for n, room in rooms if room is not None), None)
        if place is not None:
            piece, before = waiting.pop(place)
        else:
            piece, before = [] if stage else self._cut(worker), NO_ROOM
        if not piece:
            return None
        behind = self._room(stage, self._first(piece))
        assert behind is not None
        job = StageJob(
            rows_of(piece),
            is_prompt=True,
            source="prompt" if stage else "tokens",
            rooms=(before, behind),
        )
        if stage < self._count - 1:
            self._full.add(behind)
            return Assigned(replace(job, target="prompt"), piece=piece)
        over = [end == len(stream.prompt) for stream, _, end in piece]
        ended = [stream for (stream, _, _), ends in zip(piece, over, strict=True) if ends]
        job = replace(
            job,
            asked=ends_of(piece)[over] if ended else None,
            bounds=(UNASKED,) * len(ended),
            sampling=tuple(stream.sampling for stream in ended),
        )
        return Assigned(job, piece=piece)

    def _room(self, stage: int, one: Staged) -> int | None:
        """Where the stage can leave a piece of a stream's prompt; None: nowhere."""
        if stage == self._count - 1:
            return NO_ROOM
        first = ROOMS * self._links[one.workers[stage], one.workers[stage + 1]]
        return next((n for n in range(first, first + ROOMS) if n not in self._full), None)

    def _cut(self, worker: int) -> Piece:
        """Prompt tokens for a worker of the first stage, in order of arrival, of streams that go
        through the same workers: the piece stays whole."""
        unread = (one for one in self.owned_by(worker) if one.booked < one.first)
        ready = [one for one in unread if self._room(0, one) is not None]
        spans: Piece = []
        left = self._prefill_tokens
        for one in [one for one in ready if one.workers == ready[0].workers]:
            if left <= 0:
                break
            start, end = one.booked, min(one.first, one.booked + left)
            if self._whole_prompts and end < one.first:
                if spans:
                    break
                end = one.first
            spans.append((one.stream, start, end))
            one.booked = end
            left -= end - start
        return spans

    def _enter(self) -> None:
        """New streams, in slots; each belongs to the worker of each stage that has the fewest."""
        # by their slots' numbers would be as even only while all slots are taken: the slots that
        # were left last are used first, and all of those may be of one worker
        while self._new and (slot := self._free_slot()) is not None:
            stream = self._new.popleft()
            self._free.remove(slot)
            stream.slot = slot
            stream.tokens = list(stream.prompt)
            stream.done = [0] * self._count
            one = self._staged(stream)
            one.workers = tuple(
                min(some, key=lambda worker: len(self.owned_by(worker))) for some in self.workers
            )
            self.streams[stream.id] = one

    def _free_slot(self) -> int | None:
        """One where no replica still runs drafts, or fills, of a stream that is over: it would
        write over the states of the next one, which another replica has begun meanwhile."""
        busy = set[int]()
        for worker, assigned in self.at_work.items():
            if len(self.workers[self.stage_of[worker]]) > 1:
                busy.update(assigned.job.rows.slots.tolist(), assigned.job.fills.slots.tolist())
        return next((slot for slot in reversed(self._free) if slot not in busy), None)
