"""A replica keeps room for its share of the sequences: never too little, and no more."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backends import open_backend
from backends.checkpoints import models
from backends.engine.executors.base import StepRows
from backends.engine.streams import Stream
from backends.tetris.serving.jobs import SharedStates, StageJob
from backends.tetris.serving.layers.places import CachePlaces, share
from backends.tetris.serving.queues import StageQueues
from backends.tetris.serving.stage import Stage
from harness.core.nouns import Model
from tests.support.tetris.driving import rule_of

IDS = [5, 12, 19, 26, 33, 40]


@pytest.mark.parametrize("seed", range(20))
def test_no_replica_has_more_than_its_share_however_they_leave(seed: int) -> None:
    draw = random.Random(seed)
    replicas, slots = (draw.randint(1, 4), draw.randint(1, 4)), draw.randint(1, 9)
    rule, _ = rule_of((0.5,))
    queues = StageQueues(replicas, rule, slots=slots, batch=1, prefill_tokens=8)
    most = [0] * sum(replicas)
    for number in range(300):
        queues.add(Stream(f"{number}", (1, 2), 5))
        queues._enter()
        most = [max(n, len(queues.owned_by(worker))) for worker, n in enumerate(most)]
        if len(queues.streams) == slots:  # whoever is of one worker leaves first, or anybody
            whose = draw.randrange(replicas[0])
            own = queues.owned_by(whose) or list(queues.streams.values())
            for one in draw.sample(own, draw.randint(1, len(own))):
                queues.leave(one)
    shares = [share(slots, some) for some in replicas for _ in range(some)]
    assert all(n <= room for n, room in zip(most, shares, strict=True))
    assert max(most) == max(shares)


def test_a_place_is_kept_until_its_slot_is_released() -> None:
    places = CachePlaces(9, 2)
    rows = places.rows(StepRows([7, 7, 3], [0, 1, 0], [4, 5, 6]))
    assert rows.table.tolist() == [[0, 0, 1], [0, 1, 0], [4, 5, 6]]
    assert places.rows(StepRows([3], [1], [6])).slots.tolist() == [1]
    assert places.rows(StepRows((), (), ())).slots.tolist() == []
    with pytest.raises(IndexError):
        places.rows(StepRows([8], [0], [1]))
    assert (places.release(7), places.release(7), places.release(5)) == (0, None, None)
    assert places.rows(StepRows([8, 3], [0, 2], [1, 1])).slots.tolist() == [0, 1]


@pytest.fixture(scope="module")
def setup() -> Any:
    """Of the first of two replicas, for five sequences."""
    options = {"threads": 1, "layers": [3], "max_num_seqs": 5, "max_model_len": 64}
    backend = open_backend("tetris", models.resolve(Model("demo")), Model("demo"), options)
    made = vars(backend)["_executor"]._setups[0]
    backend.close()
    return replace(made, states=replace(made.states, replicas=(2, 1)))


def test_a_replica_reserves_its_share_and_computes_the_same(setup: Any) -> None:
    assert setup.held == 3
    found = []
    for replicas in ((1, 1), (2, 1)):
        own = replace(setup, states=replace(setup.states, replicas=replicas))
        states = SharedStates(own.states)
        stage = Stage(own, states)
        rooms = vars(stage)["_run"].slots
        # the last slots, which are no places of the smaller cache, and one after another is over
        for slot in (4, 3, 2):
            rows = StepRows.span(slot, 0, IDS)
            stage.do(StageJob(rows, is_prompt=True, target="ring"))
        stage.do(StageJob(StepRows.of([(0, 0, 7)]), target="ring", released=((3, 6),)))
        stage.do(StageJob(StepRows.of([(4, 6, 8), (0, 1, 9)]), target="ring"))
        stage.do(StageJob(StepRows.span(2, 0, IDS), recall=True))
        found.append((rooms, states.ring.copy(), states.spare[: len(IDS)].copy()))
        states.close()
    (whole, ring, spare), (part, own_ring, own_spare) = found
    assert (whole, part) == (5, 3)
    np.testing.assert_array_equal(own_ring, ring)
    np.testing.assert_array_equal(own_spare, spare)
    assert spare.any()
    assert ring[0].any(axis=(1, 2)).tolist() == [True, False, True, True, True], "by slots"
