"""What a stage is told to do and what it answers, and how states pass between stages: in memory
that all of them share, or with jobs and answers."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from backends.engine.executors.base import RING, Int32, StepRows
from backends.engine.sampling import TokenSampling
from backends.tetris.pipeline.replicas import hand_overs
from backends.tetris.serving.layers.places import share
from harness.core.nouns import Model

Hidden = NDArray[np.float32]
Place = Literal["tokens", "ring", "prompt", "spare"]
NOTHING = StepRows((), (), ())
UNASKED = -math.inf
"""A bound that every confidence exceeds."""
NO_ROOM = -1
"""The number of what nothing comes from or goes to."""
ROOMS = 2
"""Between two workers: a piece of prompts is read from one while the next comes into the other."""


@dataclass(frozen=True, slots=True)
class StageSetup:
    """One stage of a model, in the words that a process of it needs to open it."""

    index: int
    cuts: tuple[int, ...]
    """Layers behind which one stage ends and the next begins."""
    model_dir: Path
    model: Model
    options: Mapping[str, Any]
    threads: int
    states: StateSizes
    worker: int = 0
    """Whose it is, numbered through all stages."""

    @property
    def held(self) -> int:
        """Sequences that its cache has room for."""
        return share(self.states.slots, self.states.replicas[self.index])


@dataclass(frozen=True, slots=True)
class StageJob:
    """Fills first, then rows through the stage's layers, then its head."""

    rows: StepRows = NOTHING
    is_prompt: bool = False
    """They are of prompts."""
    source: Place = "tokens"
    """Where the rows' states are; "tokens": nowhere, their tokens' embeddings begin."""
    target: Place | None = None
    """Where the next stage will look for them."""
    rooms: tuple[int, int] = (NO_ROOM, NO_ROOM)
    """Of prompts: the numbers of the rooms that their states come from and go to."""
    asked: Int32 | None = None
    """Numbers of the rows whose next token may be told, ascending; none where it is None."""
    bounds: tuple[float, ...] = ()
    """Of each, what its confidence has to exceed; `UNASKED` where none is asked."""
    sampling: tuple[TokenSampling, ...] = ()
    """Of each."""
    fills: StepRows = NOTHING
    """Positions that left before this stage, ascending for each slot."""
    filled_from: Int32 | None = None
    """(n,): behind which stage each left; None: their states are in the spare rows."""
    recall: bool = False
    """Do nothing but put into the spare rows what the rows were when they left this stage."""
    released: tuple[tuple[int, int], ...] = ()
    """Slots whose sequences are over, and after how many positions."""


@dataclass(frozen=True, slots=True)
class StageDone:
    """Of each row that was asked."""

    sure: tuple[float, ...] = ()
    tokens: tuple[int | None, ...] = ()
    """What follows, where its confidence exceeded the bound."""
    busy_us: float = 0.0
    """Microseconds that the whole job took."""


@dataclass(frozen=True, slots=True)
class StateSizes:
    """Of the shared memory."""

    replicas: tuple[int, ...]
    """Workers of each stage."""
    slots: int
    rows: int
    """Of a piece of prompts."""
    width: int

    @property
    def stages(self) -> int:
        """How many there are."""
        return len(self.replicas)


class SharedStates:
    """Hidden states on their way from stage to stage, float32, in memory that processes share.

    ring: (stages - 1, slots, RING, width), behind each stage the newest positions of each slot,
        position p in row ``p % RING``.
    prompt: (rooms, rows, width), for each worker and each of the next stage `ROOMS` pieces of
        prompts on their way between them, in the order of `hand_overs`; resident once used.
    spare: (rows, width), for a stage that is built again.
    """

    def __init__(self, sizes: StateSizes, number: int | None = None) -> None:
        """The memory behind a file descriptor, or new memory."""
        cuts, width = sizes.stages - 1, sizes.width
        rooms = ROOMS * len(hand_overs(sizes.replicas))
        shapes = ((cuts, sizes.slots, RING, width), (rooms, sizes.rows, width), (sizes.rows, width))
        counts = [int(np.prod(shape)) for shape in shapes]
        self.number = os.memfd_create("decodebench-stages") if number is None else number
        if number is None:
            os.ftruncate(self.number, 4 * sum(counts))
        whole = np.frombuffer(mmap.mmap(self.number, 4 * sum(counts)), np.float32)
        parts = np.split(whole, np.cumsum(counts)[:-1])
        found = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        self.ring, self.prompt, self.spare = found

    def read(self, place: Place, stage: int, rows: StepRows, room: int = NO_ROOM) -> Hidden | None:
        """The states with which `rows` enter a stage; prompts from a room."""
        if place == "tokens":
            return None
        if place == "ring":
            found: Hidden = self.ring[stage - 1, rows.slots, rows.positions % RING]
            return found
        return (self.spare if place == "spare" else self.prompt[room])[: len(rows)]

    def write(
        self, place: Place, stage: int, rows: StepRows, states: Hidden, room: int = NO_ROOM
    ) -> None:
        """The states with which `rows` left a stage; prompts to a room."""
        if place == "ring":
            self.ring[stage, rows.slots, rows.positions % RING] = states
        else:
            (self.spare if place == "spare" else self.prompt[room])[: len(rows)] = states

    def owed(self, job: StageJob) -> Hidden:
        """The states with which the job's fills left, each behind another stage."""
        if job.filled_from is None:
            return self.spare[: len(job.fills)]
        found: Hidden = self.ring[job.filled_from, job.fills.slots, job.fills.positions % RING]
        return found

    def close(self) -> None:
        """Give the memory back as soon as no other process has it. No more can be read."""
        os.close(self.number)
        # the mapping has a descriptor of its own, until the last array in it is gone
        del self.ring, self.prompt, self.spare


@dataclass(frozen=True, slots=True)
class CarriedJob:
    """A job with the states that it needs."""

    job: StageJob
    before: Hidden | None
    """(rows, width): with which its rows enter the stage."""
    owed: Hidden | None
    """(fills, width): with which its fills left."""


@dataclass(frozen=True, slots=True)
class CarriedDone:
    """An answer with the states (rows, width) with which the job's rows left the stage, where
    somebody will look for them."""

    done: StageDone
    left: Hidden | None


def with_states(job: StageJob, stage: int, states: SharedStates) -> CarriedJob:
    """What a stage elsewhere is sent."""
    owed = states.owed(job) if len(job.fills) else None
    return CarriedJob(job, states.read(job.source, stage, job.rows, job.rooms[0]), owed)


def booked(job: StageJob, stage: int, answer: CarriedDone, states: SharedStates) -> StageDone:
    """What a stage elsewhere answered; its states are where `SharedStates` would have them."""
    if answer.left is not None:
        place: Place | None = "spare" if job.recall else job.target
        assert place is not None
        states.write(place, stage, job.rows, answer.left, job.rooms[1])
    return answer.done


class CarriedStates:
    """To a `Stage` elsewhere its `SharedStates`."""

    def __init__(self) -> None:
        self.came: CarriedJob | None = None
        self.left: Hidden | None = None

    def take(self, came: CarriedJob) -> StageJob:
        """The next job."""
        self.came, self.left = came, None
        return came.job

    def read(self, place: Place, stage: int, rows: StepRows, room: int = NO_ROOM) -> Hidden | None:
        """See `SharedStates`."""
        assert self.came is not None
        return self.came.before

    def owed(self, job: StageJob) -> Hidden:
        """See `SharedStates`."""
        assert self.came is not None
        assert self.came.owed is not None
        return self.came.owed

    def write(
        self, place: Place, stage: int, rows: StepRows, states: Hidden, room: int = NO_ROOM
    ) -> None:
        """See `SharedStates`."""
        self.left = states
