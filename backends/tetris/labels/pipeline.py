"""Batches between the stages: who waits where, which stage runs what, and what a death costs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from backends.classifiers.flight import InputInFlight
from backends.tetris.labels.jobs import LabelJob, LabelStageSetup, packed, unpacked
from backends.tetris.piped_stages import PipedStages, StageDiedError
from backends.tetris.pipeline.fusion import FusionQueue
from harness.core.backend import NAP_S

LabelStages = PipedStages[LabelStageSetup, LabelJob, LabelJob]
WEIGHT = 0.2
"""Of the last batch in the time that a stage's batches take."""
MOST_DEATHS = 6
"""In a row, without a batch answered."""


class LabelPipeline:
    """Inputs on their way through the stages. The entrance never waits for a whole batch; a later
    stage does, by the rules of `FusionQueue`: a whole batch, one whose first input has waited
    `wait_ms`, or all there are where nobody can join them. With an SLO it also goes when the stages
    ahead, as long as their batches took of late, leave no more time; who is late already does not.

    Args:
        workers: the stages' processes.
        layers: of each stage.
        batch: inputs of a batch, at most.
        wait_ms: for survivors.
        slo_ms: from an input's arrival to its answer; None: there is none.
    """

    def __init__(
        self,
        workers: LabelStages,
        layers: Sequence[int],
        *,
        batch: int,
        wait_ms: float,
        slo_ms: float | None = None,
    ) -> None:
        self._slo_ms, self._took_ms = slo_ms, [0.0] * len(layers)
        self._workers, self._layers = workers, layers
        self._batch, self._wait_ms = batch, wait_ms
        self._sums: dict[str, float] = {}
        self._deaths = 0
        self._busy: dict[int, list[InputInFlight]] = {}
        self._next = 0
        self._empty()

    def add(self, one: InputInFlight) -> None:
        """An input before the first stage."""
        one.arrived_ns = time.monotonic_ns()
        self._push(0, [one])

    def step(self) -> list[InputInFlight]:
        """Give idle stages what waits for them, and return who is done by now."""
        done: list[InputInFlight] = []
        for index in self._workers.ready(self._busy, 0.0) if self._busy else ():
            done += self._answered(index)
        self._assign()
        return done

    def rest(self, timeout_s: float) -> None:
        """Sleep until a stage has answered or a batch is due that is not whole, so long at most."""
        # what waits for a stage that is at work is due with its answer, however late it is
        free = (n for n in range(len(self._queues)) if n not in self._busy)
        due = min((self._queues[n].flush_ms for n in free), default=math.inf)
        until_s = min(timeout_s, max(0.0, (due - _now_ms()) / 1e3))
        if self._busy:
            self._workers.ready(self._busy, until_s)
        else:
            time.sleep(min(until_s, NAP_S))

    def counts(self) -> dict[str, float]:
        """What stages did since this was last asked (`results.metrics.stages`)."""
        found, self._sums = self._sums, {}
        return found

    def clear(self) -> None:
        """Wait for what runs, and forget every input."""
        while self._busy:
            for index in self._workers.ready(self._busy, 1.0):
                self._answered(index)
        self._empty()
        self._sums.clear()

    def _empty(self) -> None:
        self._queues = [FusionQueue(self._batch, 0.0) for _ in self._layers]
        self._inputs: dict[int, InputInFlight] = {}

    def _assign(self) -> None:
        for index in range(len(self._queues)):
            queue, now = self._queues[index], _now_ms()
            if index in self._busy or not len(queue):
                continue
            if index == 0 or queue.ready(now) or self._nobody_comes(index):
                inputs = [self._inputs.pop(number) for number in queue.take(now)]
                self._busy[index] = inputs
                self._workers.send(index, packed(_copies(inputs)))

    def _nobody_comes(self, index: int) -> bool:
        return not any(before in self._busy or len(self._queues[before]) for before in range(index))

    def _answered(self, index: int) -> list[InputInFlight]:
        sent = self._busy.pop(index)
        try:
            job = self._workers.receive(index)
        except StageDiedError as death:
            self._replace(index, sent, death)
            return []
        self._deaths = 0
        inputs = unpacked(job)
        on = [one for one in inputs if one.state is not None]
        self._count(index, len(inputs), len(inputs) - len(on), job.busy_us)
        if on:
            self._push(index + 1, on)
        return [one for one in inputs if one.state is None]

    def _replace(self, index: int, sent: Sequence[InputInFlight], death: StageDiedError) -> None:
        """Start another process and put its batch back: nothing of it was told. Raises
        `RuntimeError` after `MOST_DEATHS` in a row."""
        self._deaths += 1
        if self._deaths >= MOST_DEATHS:
            raise RuntimeError(f"{death}; {self._deaths} died in a row") from death
        self._workers.restart(index)
        self._sums["stages_replaced"] = self._sums.get("stages_replaced", 0.0) + 1.0
        self._push(index, sent)

    def _push(self, index: int, inputs: Sequence[InputInFlight]) -> None:
        now = _now_ms()
        numbers = range(self._next, self._next + len(inputs))
        self._next += len(inputs)
        self._inputs |= dict(zip(numbers, inputs, strict=True))
        self._queues[index].push(numbers, [self._due_ms(index, one, now) for one in inputs], now)

    def _due_ms(self, index: int, one: InputInFlight, now_ms: float) -> float:
        """When it goes on without the others of a whole batch."""
        due_ms = now_ms + self._wait_ms
        if self._slo_ms is None:
            return due_ms
        latest_ms = one.arrived_ns / 1e6 + self._slo_ms - sum(self._took_ms[index:])
        return min(due_ms, latest_ms) if latest_ms >= now_ms else due_ms

    def _count(self, index: int, rows: int, left: int, busy_us: float) -> None:
        before, took_ms = self._took_ms[index], busy_us / 1e3
        self._took_ms[index] = before + WEIGHT * (took_ms - before) if before else took_ms
        numbers = {
            "passes": 1.0,
            "rows": float(rows),
            "layers": float(rows * self._layers[index]),
            "left": float(left),
            "pass_us": busy_us,
        }
        for name, value in numbers.items():
            key = f"stage_{name}_{index + 1}"
            self._sums[key] = self._sums.get(key, 0.0) + value


def _copies(inputs: Sequence[InputInFlight]) -> list[InputInFlight]:
    """What is sent loses its states; ours keep theirs until the stage has answered."""
    return [replace(one) for one in inputs]


def _now_ms() -> float:
    return time.monotonic_ns() / 1e6
