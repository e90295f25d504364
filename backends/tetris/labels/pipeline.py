"""Batches between the stages: who waits where, which worker runs what, and what a death costs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from backends.classifiers.flight import InputInFlight
from backends.tetris.labels.costs import LabelStages
from backends.tetris.labels.jobs import LabelJob, packed, unpacked
from backends.tetris.labels.replanned import ServedPlans
from backends.tetris.labels.stages import ServedStage, StageSpan
from backends.tetris.pipeline.fusion import FusionQueue
from backends.tetris.workers.piped_stages import StageDiedError
from harness.core.backend import NAP_S

MOST_DEATHS = 6
"""In a row, without a batch answered, or of workers that ran the same input."""


class LabelPipeline:
    """Inputs on their way through the stages, each of which has one worker or more. The entrance
    never waits for a whole batch; a later stage does, by the rules of `FusionQueue`: a whole batch,
    one whose first input has waited `wait_ms`, or all there are where nobody can join them. With an
    SLO it also goes when the stages ahead, as long as their batches took of late, leave no more
    time; who is late already does not. For other stages the entrance is shut until those of before
    are empty.

    Args:
        workers: the processes.
        stages: which of them run what; with `plans` those that it has.
        batch: inputs of a batch, at most.
        wait_ms: for survivors.
        slo_ms: from an input's arrival to its answer; None: there is none.
        plans: makes the stages anew at the ends of windows; None: they stay.
    """

    def __init__(
        self,
        workers: LabelStages,
        stages: Sequence[StageSpan],
        *,
        batch: int,
        wait_ms: float,
        slo_ms: float | None = None,
        plans: ServedPlans | None = None,
    ) -> None:
        self._slo_ms, self._workers, self._plans = slo_ms, workers, plans
        self._batch, self._wait_ms = batch, wait_ms
        self._sums: dict[str, float] = {}
        self._deaths = 0
        self._at_work: dict[int, tuple[int, list[InputInFlight]]] = {}
        self._opening: set[int] = set()
        self._turns: dict[int, int] = {}
        self._turn = 0
        self._next = 0
        self._inputs: dict[int, InputInFlight] = {}
        self._stages: list[ServedStage] = []
        self._take_up(stages)
        self._since_ms: float | None = None

    def add(self, one: InputInFlight) -> None:
        """An input before the first stage."""
        one.arrived_ns = time.monotonic_ns()
        if self._since_ms is None:
            self._since_ms = _now_ms()
            if self._plans is not None:
                self._plans.begin(self._since_ms)
        self._push(0, [one])

    def step(self) -> list[InputInFlight]:
        """Give idle workers what waits for them, and return who is done by now."""
        done: list[InputInFlight] = []
        for worker in self._told(0.0):
            done += self._heard(worker)
        if self._plans is not None:
            self._plan_again(self._plans, done)
        self._assign()
        return done

    def rest(self, timeout_s: float) -> None:
        """Sleep until a worker has answered or something else is due, so long at most."""
        until_s = min(timeout_s, max(0.0, (self._due_next_ms() - _now_ms()) / 1e3))
        if self._at_work or self._opening:
            self._told(until_s)
        else:
            time.sleep(min(until_s, NAP_S))

    def counts(self) -> dict[str, float]:
        """What stages did since this was last asked (`results.metrics.stages`), and what was
        planned (`results.metrics.plans`)."""
        self._count_workers()
        found, self._sums = self._sums, {}
        return found if self._plans is None else found | self._plans.counts()

    def clear(self) -> None:
        """Wait for what runs, forget every input, and be again what it was at first."""
        while self._at_work or self._opening:
            for worker in self._told(1.0):
                self._heard(worker)
        self._inputs.clear()
        self._deaths = 0
        stages = [stage.span for stage in self._stages]
        if self._plans is not None:
            stages = self._plans.start_over()
        self._take_up(stages)
        self._sums.clear()
        self._since_ms = None

    def drop_plan(self) -> None:
        """One that is being made, which nobody will need."""
        if self._plans is not None:
            self._plans.close()

    def _take_up(self, spans: Sequence[StageSpan]) -> None:
        """Other stages. Whoever waits at the entrance of the old ones enters these."""
        waiting = self._stages[0].queue.remove_all() if self._inputs else []
        self._stages = [
            ServedStage(span, FusionQueue(self._batch, 0.0, self._wait_ms)) for span in spans
        ]
        if waiting:
            self._push(0, [self._inputs.pop(number) for number in waiting])

    def _plan_again(self, plans: ServedPlans, done: Sequence[InputInFlight]) -> None:
        plans.saw(done)
        plans.between(_now_ms())
        inside = self._at_work or any(len(stage.queue) for stage in self._stages[1:])
        if plans.shut and not inside:
            self._count_workers()
            self._take_up(plans.change(_now_ms()))

    def _told(self, timeout_s: float) -> list[int]:
        asked = [*self._at_work, *self._opening]
        return self._workers.ready(asked, timeout_s) if asked else []

    def _due_next_ms(self) -> float:
        shut = self._plans is not None and self._plans.shut
        due = math.inf if self._plans is None else self._plans.coming_ms(_now_ms())
        for stage in self._stages[1:]:
            # what waits for a stage that is at work is due with its answer, however late it is
            if not shut and self._idle(stage) is not None:
                due = min(due, stage.queue.flush_ms)
        return due

    def _assign(self) -> None:
        for place, stage in enumerate(self._stages):
            while self._may_start(place) and (worker := self._idle(stage)) is not None:
                inputs = [self._inputs.pop(number) for number in stage.queue.take(_now_ms())]
                self._at_work[worker] = place, inputs
                self._turn += 1
                self._turns[worker] = self._turn
                span = stage.span.first, stage.span.end
                self._workers.send(worker, packed(_copies(inputs), span))

    def _may_start(self, place: int) -> bool:
        queue = self._stages[place].queue
        if not len(queue):
            return False
        if self._plans is not None and self._plans.shut:
            return place > 0
        return place == 0 or queue.ready(_now_ms()) or self._nobody_comes(place)

    def _idle(self, stage: ServedStage) -> int | None:
        """The worker that has rested longest: one that ran only beside all others would look slow
        where they share cores."""
        away = self._at_work.keys() | self._opening
        idle = [one for one in stage.span.workers if one not in away]
        return min(idle, key=lambda one: self._turns.get(one, 0), default=None)

    def _nobody_comes(self, place: int) -> bool:
        if any(at < place for at, _ in self._at_work.values()):
            return False
        return not any(len(stage.queue) for stage in self._stages[:place])

    def _heard(self, worker: int) -> list[InputInFlight]:
        """What a worker's message makes done."""
        opening = worker in self._opening
        self._opening.discard(worker)
        place, sent = (0, []) if opening else self._at_work.pop(worker)
        try:
            if opening:
                self._workers.opened(worker)
                return []
            return self._answered(worker, place, self._workers.receive(worker))
        except StageDiedError as death:
            self._replace(worker, place, sent, death)
            return []

    def _answered(self, worker: int, place: int, job: LabelJob) -> list[InputInFlight]:
        self._deaths = 0
        inputs = unpacked(job)
        on = [one for one in inputs if one.state is not None]
        self._count(place, len(inputs), len(inputs) - len(on), job.busy_us)
        if self._plans is not None:
            self._plans.ran(worker, job)
        if on:
            self._push(place + 1, on)
        return [one for one in inputs if one.state is None]

    def _replace(
        self, worker: int, place: int, sent: Sequence[InputInFlight], death: StageDiedError
    ) -> None:
        """Start another process, which has a part again once it is open, and put its batch back:
        nothing of it was told. Raises `RuntimeError` after `MOST_DEATHS`."""
        self._deaths += 1
        for one in sent:
            one.deaths += 1
        if self._deaths >= MOST_DEATHS:
            raise RuntimeError(f"{death}; {self._deaths} died in a row") from death
        if ill := next((one for one in sent if one.deaths >= MOST_DEATHS), None):
            told = f"{ill.deaths} died over request {ill.request_id}"
            raise RuntimeError(f"{death}; {told}") from death
        self._workers.start_anew(worker)
        self._opening.add(worker)
        if self._plans is not None:
            self._plans.replaced(worker)
        its = (n for n, one in enumerate(self._stages) if worker in one.span.workers)
        self._add(f"stage_replaced_{next(its, place) + 1}", 1.0)
        if sent:
            self._push(place, sent)

    def _push(self, place: int, inputs: Sequence[InputInFlight]) -> None:
        now = _now_ms()
        numbers = range(self._next, self._next + len(inputs))
        self._next += len(inputs)
        self._inputs |= dict(zip(numbers, inputs, strict=True))
        due = [self._latest_ms(place, one) for one in inputs]
        self._stages[place].queue.push(numbers, due, now)

    def _latest_ms(self, place: int, one: InputInFlight) -> float:
        """When it has to go on for its SLO, with or without others."""
        if self._slo_ms is None:
            return math.inf
        ahead_ms = sum(stage.took_ms for stage in self._stages[place:])
        return one.arrived_ns / 1e6 + self._slo_ms - ahead_ms

    def _count(self, place: int, rows: int, left: int, busy_us: float) -> None:
        stage = self._stages[place]
        stage.took(busy_us / 1e3)
        numbers = {
            "passes": 1.0,
            "rows": float(rows),
            "layers": float(rows * (stage.span.end - stage.span.first)),
            "left": float(left),
            "pass_us": busy_us,
        }
        for name, value in numbers.items():
            self._add(f"stage_{name}_{place + 1}", value)

    def _count_workers(self) -> None:
        """The time that each stage's workers had, up to now."""
        if self._since_ms is None:
            return
        before, self._since_ms = self._since_ms, _now_ms()
        for place, stage in enumerate(self._stages):
            had_us = 1e3 * (self._since_ms - before) * len(stage.span.workers)
            self._add(f"stage_worker_us_{place + 1}", had_us)

    def _add(self, name: str, value: float) -> None:
        self._sums[name] = self._sums.get(name, 0.0) + value


def _copies(inputs: Sequence[InputInFlight]) -> list[InputInFlight]:
    """What is sent loses its states; ours keep theirs until the worker has answered."""
    return [replace(one) for one in inputs]


def _now_ms() -> float:
    return time.monotonic_ns() / 1e6
