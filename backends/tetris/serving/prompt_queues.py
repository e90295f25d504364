"""What waits before stages in every pipeline: prompts, which go through in pieces, and slots."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from backends.engine.decisions import DecisionHook
from backends.engine.passes import Span, ends_of, rows_of
from backends.engine.streams import Stream
from backends.own.exits.rule import SequenceRule
from backends.tetris.serving.jobs import UNASKED, StageJob
from backends.tetris.serving.staged import RunSpan, StagedStream

Staged = TypeVar("Staged", bound=StagedStream)


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
    spans: list[RunSpan] = field(default_factory=list)
    """Where every layer runs for every position: those of its rows."""


class PromptQueues(ABC, Generic[Staged]):
    """Prompts before each of `count` stages; what their tokens do is a subclass's matter.

    Args:
        count: stages.
        rule: who is sure where.
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
        self._count, self._slots = count, slots
        self._rule, self._batch, self._replayed = rule, batch, replayed
        self._prefill_tokens, self._whole_prompts = prefill_tokens, whole_prompts
        self.streams: dict[str, Staged] = {}
        """Those with a slot, by id."""
        self._released: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self.clear()

    def clear(self) -> None:
        """Forget every stream."""
        for one in self.streams.values():
            self._release(one)
        self.streams.clear()
        self._new: deque[Stream] = deque()
        self._half_booked: Staged | None = None
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

    def leave(self, one: Staged) -> None:
        """A stream is over."""
        del self.streams[one.stream.id]
        self._free.append(one.stream.slot)
        self._release(one)

    def take(self, stage: int) -> Assigned | None:
        """What an idle stage does next: prompts and tokens by turns."""
        found = None if self._tokens_next[stage] else self._piece(stage)
        if found is None:
            found = self._tokens(stage) or self._piece(stage) or self._filling(stage)
        if found is None:
            return None
        self._tokens_next[stage] = found.piece is not None
        released, self._released[stage] = self._released[stage], []
        found.job = replace(found.job, released=tuple(released))
        return found

    def done(self, stage: int, assigned: Assigned) -> None:
        """Book what a stage has done."""
        for stream, _, end in assigned.piece or ():
            stream.done[stage] = end
        if assigned.piece is not None and stage:
            self._kept_free[stage - 1] = True

    def go_on(self, stage: int, piece: list[Span]) -> None:
        """A piece of prompts waits behind a stage that has done it."""
        self._pieces[stage + 1] = piece

    def put_back(self, stage: int, assigned: Assigned) -> None:
        """A stage has done nothing of it."""
        self._released[stage] = [*assigned.job.released, *self._released[stage]]
        if assigned.piece is not None:
            self._pieces[stage] = assigned.piece
            self._kept_free[stage] = True

    @abstractmethod
    def wait_for(self, stage: int, one: Staged) -> None:
        """A stream's newest position waits before a stage."""

    @abstractmethod
    def _staged(self, stream: Stream) -> Staged:
        """A stream that gets a slot."""

    @abstractmethod
    def _tokens(self, stage: int) -> Assigned | None:
        """Tokens that wait before a stage."""

    @abstractmethod
    def _may_come(self, stage: int) -> bool:
        """Whether more rows may come before a stage without those that wait there."""

    def _filling(self, stage: int) -> Assigned | None:
        """What a stage with nothing else to do does."""
        return None

    def _holds_back(self, stage: int, rows: int) -> bool:
        """Whether a stage before which so many rows wait goes on waiting."""
        if stage and rows < self._batch and self._may_come(stage):
            self._held_back[stage] += bool(rows)
            if self._held_back[stage] <= self._batch:
                return True
        self._held_back[stage] = 0
        return False

    def _release(self, one: Staged) -> None:
        for released in self._released:
            released.append((one.stream.slot, one.newest + 1))

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
            bounds=(UNASKED,) * len(ended),
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

    def _enter(self) -> Staged:
        """The first new stream, in a slot."""
        stream = self._new.popleft()
        stream.slot = self._free.pop()
        stream.tokens = list(stream.prompt)
        stream.done = [0] * self._count
        one = self.streams[stream.id] = self._staged(stream)
        return one
