"""Stages of a decoder that are played in this process, with real shared rows and made-up states.

A state is a hash of all that it was computed from, so that a position that is missing, computed
twice, out of order or from overwritten rows gives other tokens, or fails here.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from backends.engine.executors.base import RING, StepRows
from backends.tetris.pipeline.replicas import hand_overs
from backends.tetris.serving.jobs import ROOMS, StageDone, StageJob
from backends.tetris.serving.layers.places import CachePlaces, share
from backends.tetris.workers.piped_stages import StageDiedError

WORDS = 50
SURE, WORD, TOKEN = 1, 2, 3
"""What a hash is of; strings have others in each process."""
REBUILDING, IDLE = 0.02, 0.02
"""Deaths in a job that rebuilds, and in none, over those in another job."""
SELDOM = 0.1
"""How often a slow worker may be heard, of all times."""
KEPT = 9
"""Positions of a released slot that stay, as pages do."""


def sureness(state: int) -> float:
    """Between 0 and 1."""
    return (hash((SURE, state)) % 1000 + 0.5) / 1000


def word(state: int, words: int = WORDS) -> int:
    """The token that follows."""
    return hash((WORD, state)) % words


def alone(
    prompt: tuple[int, ...],
    most: int,
    stops: frozenset[int],
    bounds: tuple[float, ...],
    words: int = WORDS,
) -> tuple[list[int], list[int]]:
    """The answer of one process, and behind which stage each token but the first one left."""
    keys: list[Any] = [0] * (len(bounds) + 1)
    answer, left = list[int](), list[int]()
    for token in prompt:
        state: Any = (TOKEN, token)
        for stage, before in enumerate(keys):
            keys[stage] = hash((before, state))
            state = hash((stage, keys[stage]))
    answer.append(word(state, words))
    while answer[-1] not in stops and len(answer) < most:
        state, over = (TOKEN, answer[-1]), None
        for stage, before in enumerate(keys):
            keys[stage] = hash((before, state))
            if over is None:
                state = hash((stage, keys[stage]))
                if stage == len(bounds) or sureness(state) > bounds[stage]:
                    over = stage
        answer.append(word(state, words))
        assert over is not None
        left.append(over)
    return answer, left


class MortalStages:
    """To a `StagePipeline` its processes. They answer in any order, and die: before a job, in the
    middle with half of what they had to write, behind it with the answer untold, idle, while
    another one is rebuilt, and when they have just been started. What one does is done when its
    answer is heard, however long others have been at it since.

    Args:
        replicas: workers of each stage; each has room for its share of the streams.
        slots: of streams.
        rows: of a piece of prompts.
        seed: of all that happens.
        deadly: the share of jobs that end their worker.
        words: a stage says one of so many, at the end of every stage another one.
        drafts: rows may rest on a draft that has fallen, and be read while they are written anew:
            what is read then is anything.
        whole: prompts come whole, and several only while they have so many rows; None: in pieces.
    """

    def __init__(
        self,
        replicas: Sequence[int],
        *,
        slots: int,
        rows: int,
        seed: int = 0,
        deadly: float = 0.0,
        whole: int | None = None,
        words: int = WORDS,
        drafts: bool = False,
    ) -> None:
        self.restarts = 0
        self.asks = 0
        """Answers that were heard of rows that a stage before the last was asked of."""
        self.cursed: int | None = None
        """A worker that no job of its own leaves alive."""
        self.slow: int | None = None
        """A worker that is seldom heard while others are at work."""
        self._stage_of = [stage for stage, some in enumerate(replicas) for _ in range(some)]
        count = self._count = len(replicas)
        self._deadly, self._whole, self._words = deadly, whole, words
        self._drafts = drafts
        self._draw = random.Random(seed)
        self._ring: list[Any] = [[[None] * RING for _ in range(slots)] for _ in range(count - 1)]
        self._prompt: list[Any] = [[None] * rows for _ in range(ROOMS * len(hand_overs(replicas)))]
        self._spare: list[Any] = [None] * rows
        self._keys: list[dict[tuple[int, int], int]] = [{} for _ in self._stage_of]
        self._states: list[dict[tuple[int, int], int]] = [{} for _ in self._stage_of]
        self._slots = slots
        self._room = [share(slots, some) for some in replicas for _ in range(some)]
        self._places = list(map(self._no_places, range(len(self._room))))
        self._jobs: dict[int, StageJob] = {}
        self._dead: set[int] = set()

    def send(self, index: int, job: StageJob) -> None:
        """See `PipedStages.send`."""
        assert index not in self._jobs, "a job beside another"
        self._jobs[index] = job

    def ready(self, busy: Collection[int], timeout_s: float | None = None) -> list[int]:
        """Some of them."""
        some = sorted(busy)
        if self._draw.random() > SELDOM:
            some = [index for index in some if index != self.slow] or some
        return sorted(self._draw.sample(some, self._draw.randint(1, len(some))))

    def receive(self, index: int) -> StageDone:
        """See `PipedStages.receive`."""
        job = self._jobs.pop(index)
        if index in self._dead:
            raise self._death(index)
        rebuilds = (
            job.recall
            or job.source == "spare"
            or (bool(len(job.fills)) and job.filled_from is None)
        )
        share = self._deadly * (REBUILDING if rebuilds else 1)
        dies = self._draw.random() < share or (index == self.cursed and not rebuilds)
        how = self._draw.choice(("before", "amid", "behind"))
        if dies and how == "before":
            raise self._death(index)
        done = self._done(index, job, broken=dies and how == "amid")
        if dies:
            raise self._death(index)
        self.asks += len(done.sure) * (self._stage_of[index] < self._count - 1)
        for other in set(range(len(self._stage_of))) - self._jobs.keys():
            if self._draw.random() < self._deadly * IDLE:
                self._dead.add(other)
        return done

    def restart(self, index: int) -> None:
        """See `PipedStages.restart`."""
        self.restarts += 1
        self._keys[index], self._states[index] = {}, {}
        self._places[index] = self._no_places(index)
        self._jobs.pop(index, None)
        self._dead.discard(index)
        if self._draw.random() < self._deadly:
            raise self._death(index)

    def _no_places(self, index: int) -> CachePlaces:
        return CachePlaces(self._slots, self._room[index])

    def _death(self, index: int) -> StageDiedError:
        self._dead.add(index)
        return StageDiedError("played", index, "ended with code -9")

    def _done(self, index: int, job: StageJob, *, broken: bool) -> StageDone:
        keys, states, stage = self._keys[index], self._states[index], self._stage_of[index]
        if job.is_prompt and self._whole is not None:
            spans = list(job.rows.spans())
            assert all(start == 0 for _, start, _ in spans), "a prompt is cut"
            assert len(spans) == 1 or len(job.rows) <= self._whole, "too many together"
        for slot, length in job.released:
            self._places[index].release(slot)
            if length > KEPT:
                for place in [one for one in keys if one[0] == slot and one[1] >= KEPT]:
                    del keys[place]
        for some in (job.fills, job.rows):
            self._places[index].rows(some)
        if job.recall:
            for row, (slot, position, _) in enumerate(_each(job.rows)):
                self._spare[row] = None if broken else states[slot, position]
            return StageDone()
        for row, (slot, position, _) in enumerate(_each(job.fills)):
            if job.filled_from is None:
                self._put(index, slot, position, self._spare[row])
            else:
                behind = self._ring[job.filled_from[row]][slot]
                self._put(index, slot, position, behind[position % RING])
        found = []
        for row, (slot, position, token) in enumerate(_each(job.rows)):
            entered = self._entered(stage, job, row, (slot, position, token))
            state = hash((stage, self._put(index, slot, position, entered)))
            states[slot, position] = state
            found.append(state)
        for row, (slot, position, _) in enumerate(_each(job.rows)):
            told = None if broken else found[row]
            if job.target == "ring":
                self._ring[stage][slot][position % RING] = told
            elif job.target == "prompt":
                self._prompt[job.rooms[1]][row] = told
        if job.asked is None:
            return StageDone(busy_us=1.0)
        asked = [found[row] for row in job.asked]
        is_last = stage == self._count - 1
        sure = [0.0 if is_last else sureness(state) for state in asked]
        tokens = [
            word(state, self._words) if one > bound else None
            for state, one, bound in zip(asked, sure, job.bounds, strict=True)
        ]
        return StageDone(tuple(sure), tuple(tokens), 1.0)

    def _entered(self, stage: int, job: StageJob, row: int, place: tuple[int, int, int]) -> Any:
        slot, position, token = place
        if job.source == "tokens":
            return TOKEN, token
        if job.source == "ring":
            return self._ring[stage - 1][slot][position % RING]
        return self._prompt[job.rooms[0]][row] if job.source == "prompt" else self._spare[row]

    def _put(self, index: int, slot: int, position: int, entered: Any) -> int:
        keys = self._keys[index]
        if entered is None and self._drafts:
            entered = self._draw.random()
        assert entered is not None, "rows that nobody has written, or half"
        before = keys[slot, position - 1] if position else 0
        keys[slot, position] = hash((before, entered))
        return keys[slot, position]


def _each(rows: StepRows) -> Iterator[tuple[int, int, int]]:
    return zip(*(column.tolist() for column in rows.table), strict=True)
