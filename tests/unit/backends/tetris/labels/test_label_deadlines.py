"""A pipeline of labels without processes: who waits to be fused, and for how long."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
import torch

from backends.classifiers.flight import InputInFlight
from backends.classifiers.models.base import RowState
from backends.tetris.labels.jobs import LabelJob, packed, unpacked
from backends.tetris.labels.pipeline import LabelPipeline
from backends.tetris.labels.stages import spans
from backends.tetris.workers.piped_stages import StageDiedError

LONG_MS = 600_000.0
SLO_MS = 2_500.0
"""More than a machine stands still for between an input's coming and the first look at it."""


class SlowSecondInput:
    """Stages of which the first answers once, with an input that goes on, and then is at work.
    `asked_s` are the times that somebody was ready to sleep."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, LabelJob]] = []
        self.asked_s: list[float] = []
        self._answered = False

    def send(self, index: int, job: LabelJob) -> None:
        self.sent.append((index, job))

    def ready(self, busy: Any, timeout_s: float) -> list[int]:
        self.asked_s.append(timeout_s)
        return [] if self._answered else [0]

    def receive(self, index: int) -> LabelJob:
        self._answered = True
        inputs = unpacked(self.sent[0][1])
        for one in inputs:
            one.state = RowState(torch.zeros(1), 1)
        return packed(inputs, self.sent[0][1].span, busy_us=1_000.0)


def asked(slo_ms: float | None, came_ms_ago: float = 0.0, within_s: float = 0.2) -> list[int]:
    """The stages that are sent something while the second input stays in the first stage, for so
    long at most."""
    stages = SlowSecondInput()
    pipeline = LabelPipeline(
        cast(Any, stages), spans((1, 2), (1, 1)), batch=8, wait_ms=LONG_MS, slo_ms=slo_ms
    )
    first = InputInFlight("a", (1,))
    pipeline.add(first)
    first.arrived_ns -= int(1e6 * came_ms_ago)
    pipeline.step()
    pipeline.add(InputInFlight("b", (1,)))
    until_s = time.monotonic() + within_s
    while len(stages.sent) < 3 and time.monotonic() < until_s:
        pipeline.step()
        time.sleep(0.002)
    return [index for index, _ in stages.sent]


def test_without_an_slo_a_survivor_waits_for_others() -> None:
    assert asked(None) == [0, 0]
    assert asked(LONG_MS) == [0, 0]


def test_who_can_still_make_it_goes_in_time() -> None:
    assert asked(SLO_MS, within_s=30.0) == [0, 0, 1]


def test_who_is_late_already_hurries_nobody() -> None:
    assert asked(SLO_MS, came_ms_ago=10_000.0) == [0, 0]


def test_nobody_stays_awake_for_what_waits_for_a_stage_at_work() -> None:
    """An input has waited longer than it has patience while the first stage is at work: nothing can
    be done before that answers, and the core is the stages'."""
    stages = SlowSecondInput()
    pipeline = LabelPipeline(cast(Any, stages), spans((1, 2), (1, 1)), batch=1, wait_ms=0.0)
    pipeline.add(InputInFlight("a", (1,)))
    pipeline.step()
    pipeline.add(InputInFlight("b", (1,)))
    pipeline.rest(5.0)
    assert stages.asked_s == [5.0]
    pipeline.step()  # "a" goes on to the second stage, "b" is in the first one
    assert [index for index, _ in stages.sent] == [0, 0, 1]
    pipeline.add(InputInFlight("c", (1,)))
    pipeline.rest(5.0)
    assert stages.asked_s[-1] == 5.0


class Deadly:
    """One worker that dies over a request, and another that answers all else."""

    def __init__(self) -> None:
        self.at_work: dict[int, LabelJob | None] = {}

    def send(self, index: int, job: LabelJob) -> None:
        self.at_work[index] = job

    def ready(self, busy: Any, timeout_s: float) -> list[int]:
        return sorted(busy)

    def receive(self, index: int) -> LabelJob:
        job = self.at_work[index]
        assert job is not None
        if any(one.request_id == "deadly" for one in job.inputs):
            raise StageDiedError("tetris-classifier", index, "ended with code -9")
        return packed(unpacked(job), job.span, busy_us=1_000.0)

    def start_anew(self, index: int) -> None:
        self.at_work[index] = None

    def opened(self, index: int) -> None:
        assert self.at_work[index] is None


def test_an_input_that_ends_its_workers_ends_the_trial_whoever_else_is_answered() -> None:
    pipeline = LabelPipeline(
        cast(Any, Deadly()), spans((2,), (2,)), batch=1, wait_ms=LONG_MS, slo_ms=None
    )
    pipeline.add(InputInFlight("deadly", (1,)))
    done: list[InputInFlight] = []

    def serve() -> None:
        for number in range(1000):
            pipeline.add(InputInFlight(str(number), (1,)))
            done.extend(pipeline.step())

    with pytest.raises(RuntimeError, match="6 died over request deadly"):
        serve()
    assert 6 <= len(done) < 100


def test_a_trial_does_not_count_the_deaths_of_the_one_before() -> None:
    pipeline = LabelPipeline(
        cast(Any, Deadly()), spans((2,), (1,)), batch=1, wait_ms=LONG_MS, slo_ms=None
    )
    for _ in range(4):
        pipeline.add(InputInFlight("deadly", (1,)))
        for _ in range(5):  # it dies, and another process comes up
            pipeline.step()
        assert pipeline._deaths > 1
        pipeline.clear()
        assert pipeline._deaths == 0
