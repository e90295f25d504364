"""A pipeline of labels whose workers are played: who is sent what, and when others may run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, cast

import pytest
import torch

from backends.classifiers.flight import InputInFlight
from backends.classifiers.models.base import RowState
from backends.tetris.labels.jobs import LabelJob, packed, unpacked
from backends.tetris.labels.pipeline import LabelPipeline
from backends.tetris.labels.stages import StageSpan, spans
from backends.tetris.workers.piped_stages import StageDiedError

DEPTH = 4


class PlayedWorkers:
    """Answer when they are told to; inputs with even ids leave behind layer 1."""

    def __init__(self) -> None:
        self.sent: dict[int, LabelJob] = {}
        self.told: list[tuple[int, tuple[int, int], list[str]]] = []
        self.may: set[int] = set()
        self.dead: set[int] = set()
        self.opening: set[int] = set()

    def send(self, index: int, job: LabelJob) -> None:
        assert index not in self.sent
        self.sent[index] = job
        self.told.append((index, job.span, [one.request_id for one in job.inputs]))

    def ready(self, busy: Collection[int], timeout_s: float) -> list[int]:
        return sorted(self.may & set(busy))

    def receive(self, index: int) -> LabelJob:
        job = self.sent.pop(index)
        self.may.discard(index)
        if index in self.dead:
            self.dead.discard(index)
            raise StageDiedError("played", index, "ended with code -9")
        inputs = unpacked(job)
        for one in inputs:
            leaves = job.span[1] == DEPTH or int(one.request_id) % 2 == 0
            one.state = None if leaves else RowState(torch.zeros(1), 1)
        return packed(inputs, job.span, 1000.0)

    def start_anew(self, index: int) -> None:
        self.opening.add(index)

    def opened(self, index: int) -> None:
        self.opening.discard(index)
        self.may.discard(index)

    def answer(self, *indices: int) -> None:
        self.may |= set(indices)


class PlayedPlans:
    """Other stages, once `shut` is set."""

    def __init__(self, after: list[StageSpan]) -> None:
        self.shut, self._after, self.seen = False, after, list[str]()

    def begin(self, now_ms: float) -> None: ...

    def saw(self, done: list[InputInFlight]) -> None:
        self.seen += [one.request_id for one in done]

    def between(self, now_ms: float) -> None: ...

    def ran(self, worker: int, job: LabelJob) -> None: ...

    def replaced(self, worker: int) -> None: ...

    def coming_ms(self, now_ms: float) -> float:
        return float("inf")

    def counts(self) -> dict[str, float]:
        return {"plan_at_ms_1": 0.0}

    def change(self, now_ms: float) -> list[StageSpan]:
        self.shut = False
        return self._after


def opened(
    stages: list[StageSpan], plans: PlayedPlans | None = None, batch: int = 2
) -> tuple[PlayedWorkers, LabelPipeline]:
    workers = PlayedWorkers()
    pipeline = LabelPipeline(
        cast(Any, workers), stages, batch=batch, wait_ms=1e6, plans=cast(Any, plans)
    )
    return workers, pipeline


def asked(pipeline: LabelPipeline, *names: int) -> None:
    for name in names:
        pipeline.add(InputInFlight(str(name), (1,)))


def test_replicas_share_a_stage_and_take_turns() -> None:
    workers, pipeline = opened(spans((1, DEPTH), (2, 1)))
    asked(pipeline, *range(8))
    pipeline.step()
    assert [(index, span) for index, span, _ in workers.told] == [(0, (0, 1)), (1, (0, 1))]
    workers.answer(0)
    pipeline.step()
    workers.answer(1)
    pipeline.step()
    # both are idle: the one that was sent something longer ago is first
    workers.answer(0, 1, 2)
    pipeline.step()
    workers.told.clear()
    asked(pipeline, 8, 10)
    pipeline.step()
    assert workers.told[0][0] == 0


def test_new_stages_wait_for_the_old_ones_to_be_empty() -> None:
    plans = PlayedPlans([StageSpan(0, 2, (0, 1)), StageSpan(2, DEPTH, (2,))])
    workers, pipeline = opened(spans((1, DEPTH), (1, 2)), plans)
    asked(pipeline, 1, 3, 5)
    pipeline.step()
    plans.shut = True
    asked(pipeline, 7, 9)
    workers.answer(0)
    pipeline.step()
    # the survivors go on at once, the entrance is shut
    assert [span for _, span, _ in workers.told] == [(0, 1), (1, DEPTH)]
    assert plans.shut
    workers.answer(1)
    done = pipeline.step()
    assert sorted(one.request_id for one in done) == ["1", "3"]
    assert [(span, names) for _, span, names in workers.told[2:]] == [
        ((0, 2), ["5", "7"]), ((0, 2), ["9"]),
    ]  # fmt: skip
    while len(plans.seen) < 5:
        workers.answer(*workers.sent)
        pipeline.step()
    assert Counter(plans.seen) == Counter(["1", "3", "5", "7", "9"])


def test_a_batch_runs_again_when_its_worker_dies_even_while_it_is_shut() -> None:
    plans = PlayedPlans([StageSpan(0, DEPTH, (0, 1, 2))])
    workers, pipeline = opened(spans((1, DEPTH), (2, 1)), plans)
    asked(pipeline, 1, 3)
    pipeline.step()
    workers.answer(0)
    pipeline.step()
    assert workers.told[-1][:2] == (2, (1, DEPTH))
    plans.shut = True
    workers.dead.add(2)
    workers.answer(2)
    assert pipeline.step() == []
    assert workers.opening == {2}
    # nothing else may run the old stage, and the new one does not begin
    assert plans.shut
    assert len(workers.told) == 2
    workers.answer(2)
    pipeline.step()
    assert workers.told[-1] == (2, (1, DEPTH), ["1", "3"])
    workers.answer(2)
    assert sorted(one.request_id for one in pipeline.step()) == ["1", "3"]
    assert not plans.shut
    assert pipeline.counts()["stage_replaced_2"] == 1


def test_the_others_go_on_while_a_worker_is_replaced() -> None:
    workers, pipeline = opened(spans((DEPTH,), (2,)))
    asked(pipeline, 1, 2, 3, 4)
    pipeline.step()
    workers.dead.add(0)
    workers.answer(0)
    pipeline.step()
    workers.answer(1)
    done = pipeline.step()
    assert [one.request_id for one in done] == ["3", "4"]
    assert workers.told[-1] == (1, (0, DEPTH), ["1", "2"])


def test_workers_that_die_again_and_again_end_it() -> None:
    workers, pipeline = opened(spans((DEPTH,), (1,)))
    asked(pipeline, 1)

    def dying() -> None:
        for _ in range(20):
            pipeline.step()
            workers.dead |= workers.sent.keys()
            workers.answer(0)

    with pytest.raises(RuntimeError, match="6 died in a row"):
        dying()


def test_the_time_of_workers_is_counted_by_stage() -> None:
    workers, pipeline = opened(spans((1, DEPTH), (2, 1)))
    asked(pipeline, 2)
    pipeline.step()
    workers.answer(0)
    assert len(pipeline.step()) == 1
    counts = pipeline.counts()
    assert counts["stage_worker_us_1"] == pytest.approx(2 * counts["stage_worker_us_2"])
    assert counts["stage_worker_us_2"] > 0


def test_nobody_is_left_after_clear() -> None:
    workers, pipeline = opened(spans((1, DEPTH), (1, 1)))
    asked(pipeline, 1, 3, 5)
    pipeline.step()
    workers.answer(0)
    pipeline.clear()
    assert pipeline.step() == []
    assert workers.sent == {}
