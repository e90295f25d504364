"""Stages with several workers: who belongs to whom, and what one of them keeps from another."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from backends.tetris.pipeline.replicas import hand_overs, numbered
from backends.tetris.serving import processes as processes_module
from backends.tetris.serving.counts import StageCounts
from backends.tetris.serving.drafts.queues import DraftQueues
from backends.tetris.serving.jobs import StageDone, StageJob, StageSetup, StateSizes
from backends.tetris.serving.layers import opening
from backends.tetris.serving.processes import StageProcesses, setups
from backends.tetris.serving.prompt_queues import Assigned
from harness.core.backend import Backend
from results.metrics.stages import by_stage
from tests.support.tetris.driving import rule_of
from tests.unit.backends.tetris.serving.test_prompt_rooms import hand_on, names, queued, stream
from tests.unit.backends.tetris.serving.test_texts import (
    MODEL,
    answers,
    assert_counted,
    opened,
    reference,
    requests,
)


def first_of(replicas: tuple[int, ...]) -> StageSetup:
    """The setup of the first worker."""
    cuts = tuple(range(1, len(replicas)))
    return StageSetup(0, cuts, Path(), MODEL, {}, 1, StateSizes(replicas, 4, 8, 16))


def test_workers_are_numbered_through_all_stages() -> None:
    assert numbered((2, 1, 3)) == [range(2), range(2, 3), range(3, 6)]
    assert hand_overs((2, 1, 3)) == [(0, 2), (1, 2), (2, 3), (2, 4), (2, 5)]
    found = setups(first_of((2, 1)))
    assert [(one.index, one.worker) for one in found] == [(0, 0), (0, 1), (1, 2)]


def test_streams_are_shared_out_evenly_whoever_ends() -> None:
    """The slots that are free last are those of two streams of one worker."""
    queues = queued((2, 3), slots=8)
    for name in "abcd":
        queues.add(stream(name))
    queues.take(0)
    assert [one.workers for one in queues.streams.values()] == [(0, 2), (1, 3), (0, 4), (1, 2)]
    queues.done(0)
    for name in "acbd":
        queues.leave(queues.streams[name])
    for name in "ef":
        queues.add(stream(name))
    queues.take(0)
    assert [one.workers for one in queues.streams.values()] == [(0, 2), (1, 3)]


def test_a_worker_waits_for_nobody_who_belongs_to_another() -> None:
    queues = queued((1, 2), slots=3, batch=2)
    for name in "abc":
        queues.add(stream(name))
    queues.take(0)
    a, b, c = (queues.streams[name] for name in "abc")
    assert (a.workers[1], b.workers[1], c.workers[1]) == (1, 2, 1)
    queues.wait_for(1, a)
    queues.wait_for(0, c)
    assert queues.take(1) is None
    queues.clear()
    queues.streams.update(a=a, b=b)
    queues.wait_for(1, a)
    queues.wait_for(0, b)
    found = queues.take(1)
    assert found is not None
    assert found.inside == [a]


def test_rows_are_held_back_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """From when a worker is idle and has some; then they go, and the next ones wait anew."""
    now_s = 50.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    queues = queued((1, 1), slots=3, batch=3, wait_s=2.0)
    for name in "abc":
        queues.add(stream(name))
    queues.take(0)
    queues.at_work.clear()
    a, b, c = queues.streams.values()
    queues.wait_for(0, c)
    assert queues.take(1) is None
    assert queues.patience_s() is None, "nobody waits there"
    for one in (a, b):
        now_s += 10.0
        queues.wait_for(1, one)
        assert queues.take(1) is None
        assert queues.patience_s() == 2.0
        now_s += 1.5
        assert queues.take(1) is None
        assert queues.patience_s() == 0.5
        queues.at_work[1] = Assigned(StageJob())
        assert queues.patience_s() is None, "it is no longer idle"
        queues.at_work.clear()
        now_s += 0.5
        found = queues.take(1)
        assert found is not None
        assert found.inside == [one]
        assert queues.patience_s() is None
        queues.at_work.clear()


def test_a_slot_is_free_when_no_replica_is_at_work_in_it() -> None:
    """One that still runs drafts of a stream that is over writes where the next one's will be."""
    rule, _ = rule_of((0.5,))
    queues = DraftQueues((2, 1), rule, slots=1, batch=1, prefill_tokens=4)
    queues.add(stream("a"))
    queues.take(0)
    hand_on(queues, 0)
    queues.take(2)
    queues.done(2)
    over = queues.streams["a"]
    over.stream.tokens.append(1)
    assert queues.take(0) is not None
    queues.leave(over)
    queues.add(stream("b"))
    assert queues.take(1) is None
    assert not queues.streams
    queues.done(0)
    assert names(queues.take(0)) == [("b", 2)]


def test_only_the_time_of_several_workers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([1_000_000, 4_000_000, 6_000_000, 9_000_000])
    monkeypatch.setattr("time.monotonic_ns", lambda: next(now))
    counts = StageCounts((2, 4), (3, 1))
    counts.begin()
    counts.begin()
    assert counts.take() == {}, "nothing was done: it is told with what is"
    for us in (9000.0, 6000.0):
        counts.done(0, Assigned(StageJob()), StageDone(busy_us=5.0))
        assert counts.take() == {"stage_other_us_1": 5.0, "stage_worker_us_1": us}
    counts.clear()
    assert counts.take() == {}


class OpeningStoppedError(Exception):
    """Tells the setup that processes would have had."""


def test_the_cores_are_shared_out_over_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(setup: StageSetup, architecture: Any) -> StageProcesses:
        raise OpeningStoppedError(setup)

    monkeypatch.setattr(processes_module, "StageProcesses", stopped)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    for options, threads in (({"stages": 3}, 4), ({"stages": 3, "replicas": [3, 1, 2]}, 2)):
        with pytest.raises(OpeningStoppedError) as found:
            opened("tetris", {"layers": [1, 2], "threshold": 0.5, **options, "threads": None})
        assert found.value.args[0].threads == threads


def test_workers_take_the_cards_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = [opening._card(setup).index for setup in setups(first_of((3, 1)))]
    assert found == [0, 1, 0, 1]


def test_replicas_of_processes_tell_the_same_text_when_they_are_killed() -> None:
    """Who is killed is alone in being replaced, and both replicas have streams."""
    exits = {"layers": [3], "threshold": 0.9}
    kills = [(40, 1), (200, 2), (350, 0)]
    backend = opened("tetris", {**exits, "replicas": [2, 1], "prefill_tokens": 64})
    processes = vars(backend)["_executor"]
    assert isinstance(processes, StageProcesses)
    sent: Counter[int] = Counter()
    send = processes.send
    pids = processes.pids()

    def counted(worker: int, job: StageJob) -> None:
        sent[worker] += len(job.rows)
        send(worker, job)

    cast(Any, processes).send = counted

    def kill(backend: Backend, tokens: int) -> None:
        if kills and tokens >= kills[0][0]:
            others = processes.pids()
            os.kill(others[kills.pop(0)[1]], signal.SIGKILL)
            if len(kills) == 1:
                assert [new == old for new, old in zip(others, pids, strict=True)] == [
                    True, False, True,
                ]  # fmt: skip

    try:
        found, commits = answers(backend, requests(), meanwhile=kill)
    finally:
        backend.close()
    assert not kills
    assert found == reference(exits)
    assert_counted(commits, [3, 5])
    sums: Counter[str] = Counter()
    for commit in commits:
        sums.update(commit.telemetry)
    assert sums["stage_replaced_1"] >= 2
    assert sums["stage_replaced_2"] >= 1
    assert min(sent[0], sent[1]) > 0.2 * (sent[0] + sent[1])
    told = by_stage(sums, 1e6)
    assert told is not None
    first = told["1"]
    assert first["pass_us"] + first["other_us"] <= first["worker_us"] < first["window_us"]
    assert told["2"]["worker_us"] == told["2"]["window_us"]
