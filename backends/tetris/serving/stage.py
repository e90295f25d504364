"""The process of one stage: it opens its layers and does one job after another."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from backends.engine.executors.base import StepRows
from backends.engine.model.architecture import EngineError
from backends.tetris.serving.jobs import (
    CarriedDone,
    CarriedJob,
    CarriedStates,
    SharedStates,
    StageDone,
    StageJob,
    StageSetup,
)
from backends.tetris.serving.layers.places import CachePlaces
from backends.tetris.workers.piped_stages import serve


class Stage:
    """Does the jobs. Raises `UserError` for what the engine cannot take."""

    def __init__(self, setup: StageSetup, states: SharedStates | CarriedStates) -> None:
        from backends.tetris.serving.layers.opening import open_layers

        self._index, self._states = setup.index, states
        self._is_last = setup.index == len(setup.cuts)
        self._run, self._confidence = open_layers(setup)
        self._places = CachePlaces(setup.states.slots, setup.held)

    def do(self, job: StageJob) -> StageDone:
        """See `StageJob`."""
        for slot, length in job.released:
            if (place := self._places.release(slot)) is not None:
                self._run.release(place, length)
        if job.recall:
            left = self._run.left(self._places.rows(job.rows))
            self._states.write("spare", self._index, job.rows, left)
            return StageDone()
        if len(job.fills):
            self._run.fill_from(self._places.rows(job.fills), self._states.owed(job))
        if len(job.rows):
            return self._pass(job)
        self._run.wait()
        return StageDone()

    def _pass(self, job: StageJob) -> StageDone:
        rows, asked = self._places.rows(job.rows), job.asked
        before = self._states.read(job.source, self._index, job.rows, job.rooms[0])
        greedy = [how.temperature == 0 for how in job.sampling]
        wanted = np.empty(0, np.int32) if asked is None else asked
        if self._confidence is not None:
            speaks = wanted[:0]
        else:  # a head that is asked for no confidence needs no answer for those that are drawn
            speaks = wanted[greedy] if self._is_last else wanted
        tokens, sure = self._run.run(rows, before, speaks, is_prompt=job.is_prompt)
        if job.target is not None:
            left = self._run.left(rows)
            self._states.write(job.target, self._index, job.rows, left, job.rooms[1])
        if asked is None:
            return StageDone()
        some = _of(rows, asked)
        if self._confidence is not None:
            entered = None if before is None else before[asked]
            sure = self._confidence(some, entered, self._run.left(some)).tolist()
        elif self._is_last:
            sure = [0.0] * len(asked)
        leaves = [found > bound for found, bound in zip(sure, job.bounds, strict=True)]
        told: list[int | None] = [None] * len(asked)
        best = [row for row, goes in enumerate(leaves) if goes and greedy[row]]
        if self._confidence is not None and best:
            tokens, _ = self._run.exit_head(0, _of(some, np.array(best)))
            for row, token in zip(best, tokens, strict=True):
                told[row] = token
        elif best:
            spoken = np.flatnonzero(greedy) if self._is_last else range(len(asked))
            for row, token in zip(spoken, tokens, strict=True):
                told[row] = token if leaves[row] else None
        self._draw(job, some, [r for r, goes in enumerate(leaves) if goes and not greedy[r]], told)
        if -1 in told:
            raise EngineError(f"stage {self._index + 1}: the head's logits are NaN")
        return StageDone(tuple(sure), tuple(told))

    def _draw(
        self, job: StageJob, some: StepRows, drawn: list[int], told: list[int | None]
    ) -> None:
        """The tokens of those rows that are sampled, from their logits."""
        from backends.engine.draws import Draws

        if not drawn:
            return
        rows = _of(some, np.array(drawn))
        draws = Draws(job.sampling[row] for row in drawn)
        tokens, _ = draws.choose(self._run.logits(rows), rows.positions + np.int32(1))
        for row, token in zip(drawn, tokens, strict=True):
            told[row] = token


def _of(rows: StepRows, numbers: Any) -> StepRows:
    return StepRows(*(column[numbers] for column in rows.table))


def main(channel_number: int, memory_number: int | None = None) -> None:
    """Jobs come and answers go over an inherited channel; the process ends with it. Without the
    number of a memory that is shared, states come and go with them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent closes the channel
    serve(Connection(channel_number), _carried if memory_number is None else _shared(memory_number))


def _shared(memory_number: int) -> Callable[[StageSetup], Callable[[StageJob], StageDone]]:
    def opened(setup: StageSetup) -> Callable[[StageJob], StageDone]:
        return _timed(Stage(setup, SharedStates(setup.states, memory_number)))

    return opened


def _carried(setup: StageSetup) -> Callable[[CarriedJob], CarriedDone]:
    states = CarriedStates()
    timed = _timed(Stage(setup, states))

    def do(came: CarriedJob) -> CarriedDone:
        done = timed(states.take(came))
        return CarriedDone(done, states.left)

    return do


def _timed(stage: Stage) -> Callable[[StageJob], StageDone]:
    def do(job: StageJob) -> StageDone:
        start = time.perf_counter_ns()
        done = stage.do(job)
        return replace(done, busy_us=(time.perf_counter_ns() - start) / 1000)

    return do
