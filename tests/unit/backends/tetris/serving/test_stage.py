"""What one stage does with its jobs, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from backends import open_backend
from backends.checkpoints import models
from backends.engine.executors.base import StepRows
from backends.engine.model.architecture import EngineError
from backends.engine.sampling import TokenSampling
from backends.tetris.serving.jobs import SharedStates, StageDone, StageJob
from backends.tetris.serving.processes import StageProcesses
from backends.tetris.serving.stage import Stage
from harness.core.nouns import Model

MODEL = Model("demo")
IDS = [5, 12, 19, 26, 33, 40]


@pytest.fixture(scope="module", params=["softmax", "state"])
def first(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The first of two."""
    options = {"threads": 1, "layers": [3], "threshold": 0.5, "measure": request.param}
    backend = open_backend("tetris", models.resolve(MODEL), MODEL, options)
    processes = vars(backend)["_executor"]
    assert isinstance(processes, StageProcesses)
    setup = vars(processes)["_setups"][0]
    backend.close()
    states = SharedStates(setup.states)
    yield Stage(replace(setup, index=0), states)
    states.close()


def asked(stage: Stage, bound: float) -> StageDone:
    """Of the last of some tokens."""
    rows = StepRows([0] * len(IDS), range(len(IDS)), IDS)
    last = np.array([len(IDS) - 1], np.int32)
    return stage.do(StageJob(rows, asked=last, bounds=(bound,), sampling=(TokenSampling(),)))


def test_who_is_no_surer_than_the_bound_stays(first: Stage) -> None:
    """The rule of early exit is strict: a threshold of 1 lets nobody leave."""
    [sure] = asked(first, 2.0).sure
    assert 0 < sure < 1
    assert asked(first, sure) == StageDone((sure,), (None,))
    [token] = asked(first, float(np.nextafter(np.float32(sure), np.float32(0)))).tokens
    assert token is not None


def test_what_is_no_token_is_told_to_nobody(first: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where logits are NaN."""
    layers = vars(first)["_run"]
    monkeypatch.setattr(layers, "run", lambda *_, **__: ([-1], [0.5]))
    monkeypatch.setattr(layers, "exit_head", lambda *_: ([-1], [0.5]))
    with pytest.raises(EngineError, match="stage 1: the head's logits are NaN"):
        asked(first, -1.0)


def test_a_slot_that_is_released_gives_its_memory_back(
    first: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, int]] = []
    run = vars(first)["_run"]
    monkeypatch.setattr(run, "release", lambda slot, length: given.append((slot, length)))
    rows = StepRows([2, 2, 0], [0, 1, 0], IDS[:3])
    first.do(StageJob(rows, is_prompt=True))
    first.do(StageJob(released=((2, 7), (0, 3), (1, 5))))
    assert [length for _, length in given] == [7, 3], "of those that it met"
    assert len({place for place, _ in given}) == 2
    first.do(StageJob(released=((2, 7),)))
    assert len(given) == 2, "of a worker that was replaced: told again"
