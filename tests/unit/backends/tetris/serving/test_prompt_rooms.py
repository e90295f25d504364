"""Prompts between workers: a piece is read while the next one comes, and none is written over."""

from __future__ import annotations

import math
from typing import Any

from backends.engine.streams import Stream
from backends.tetris.serving.jobs import ROOMS
from backends.tetris.serving.prompt_queues import Assigned, PromptQueues
from backends.tetris.serving.queues import StageQueues
from tests.support.tetris.driving import rule_of


def queued(
    replicas: tuple[int, ...], slots: int, batch: int = 1, wait_s: float = math.inf
) -> StageQueues:
    rule, _ = rule_of((0.5,) * (len(replicas) - 1))
    return StageQueues(replicas, rule, slots=slots, batch=batch, prefill_tokens=4, wait_s=wait_s)


def stream(name: str, length: int = 2) -> Stream:
    return Stream(name, (1,) * length, 9)


def names(assigned: Assigned | None) -> list[tuple[str, int]]:
    """Of a piece: whose prompts, and up to where."""
    assert assigned is not None
    assert assigned.piece is not None
    return [(one.id, end) for one, _, end in assigned.piece]


def read(queues: StageQueues, worker: int) -> list[tuple[str, int]]:
    """The piece that a worker of the first stage takes, and hands on."""
    found = names(queues.take(worker))
    hand_on(queues, worker)
    return found


def hand_on(queues: PromptQueues[Any], worker: int) -> None:
    assigned = queues.done(worker)
    queues.go_on(0, assigned.piece or [], assigned.job.rooms[1])


def test_a_piece_is_read_while_the_one_before_it_is_read_behind() -> None:
    """In two rooms by turns; a third piece would write over one of them."""
    queues = queued((1, 1), slots=1)
    queues.add(stream("a", 15))
    assert read(queues, 0) == [("a", 4)]
    assert names(first := queues.take(1)) == [("a", 4)]
    assert read(queues, 0) == [("a", 8)]
    assert queues.take(0) is None
    queues.done(1)
    assert names(second := queues.take(1)) == [("a", 8)]
    assert names(third := queues.take(0)) == [("a", 12)]
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.job.rooms[0] != second.job.rooms[0]
    assert third.job.rooms[1] == first.job.rooms[0]


def test_a_piece_that_is_put_back_is_read_first_and_where_it_was() -> None:
    queues = queued((1, 1), slots=1)
    queues.add(stream("a", 15))
    read(queues, 0)
    before = queues.take(1)
    read(queues, 0)
    assert before is not None
    queues.put_back(1)
    again = queues.take(1)
    assert names(again) == [("a", 4)]
    assert again is not None
    assert again.job.rooms == before.job.rooms


def test_a_worker_that_reads_holds_up_no_prompt_of_another_s() -> None:
    """There are rooms for each, and who has its own goes on."""
    queues = queued((1, 2), slots=3)
    for name in "abc":
        queues.add(stream(name, 10 if name == "a" else 2))
    assert read(queues, 0) == [("a", 4)]
    assert names(queues.take(1)) == [("a", 4)]
    assert read(queues, 0) == [("a", 8)]
    assert read(queues, 0) == [("b", 2)]
    assert queues.take(0) is None, "a and c would write over what worker 1 reads"
    assert names(queues.take(2)) == [("b", 2)]
    queues.done(1)
    assert read(queues, 0) == [("a", 10), ("c", 2)]
    queues.done(2)
    assert queues.take(0) is None
    assert names(queues.take(1)) == [("a", 8)]
    queues.done(1)
    assert names(queues.take(1)) == [("a", 10), ("c", 2)]


def test_a_piece_that_is_put_back_gives_back_its_room() -> None:
    queues = queued((1, 2), slots=2)
    queues.add(stream("a"))
    for _ in range(ROOMS + 1):
        assert names(queues.take(0)) == [("a", 2)]
        queues.put_back(0)
