"""Where the workers of a classifier's pipeline are: told, named, and refused where they differ."""

from __future__ import annotations

from typing import Any

import pytest

from backends.tetris.workers.piped_stages import PipedStages, StageDiedError
from backends.tetris.workers.whereabouts import Whereabouts
from harness.core.errors import UserError
from tests.unit.backends.tetris.labels.test_planned_again import opened


def dead(backend: Any, worker: int) -> str:
    """What is told of a worker that dies."""
    backend.workers._workers[worker].kill()
    with pytest.raises(StageDiedError) as died:
        backend.workers.receive(worker)
    return str(died.value)


def test_replicas_are_told_by_their_stages() -> None:
    backend = opened("tetris-classifier", "demo-sentiment", layers=[2], replicas=[2, 1])
    try:
        found = [(one["stage"], one["replica"]) for one in backend.places()]
        assert found == [(1, 1), (1, 2), (2, 1)]
        assert "process of stage 1, replica 2 of 2 ended" in dead(backend, 1)
        assert "process of stage 2 ended" in dead(backend, 2)
    finally:
        backend.close()


def test_workers_whose_stages_change_are_told_by_number() -> None:
    backend = opened("tetris-classifier", "demo-sentiment", replan_s=60.0)
    try:
        assert [one["worker"] for one in backend.places()] == [1, 2]
        assert "process of worker 2 ended" in dead(backend, 1)
    finally:
        backend.close()


def test_plans_for_unlike_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unlike = [Whereabouts("a", "CPU8", None, "10.0.0.1"), Whereabouts("b", "CPU9")]
    monkeypatch.setattr(PipedStages, "whereabouts", lambda _: unlike)
    ended, close = list[Any](), PipedStages.close

    def closed(workers: Any) -> None:
        ended.append(workers)
        close(workers)

    monkeypatch.setattr(PipedStages, "close", closed)
    with pytest.raises(UserError, match=r"'replan_s': takes all .* CPU8 on 10.0.0.1, CPU9 on b;"):
        opened("tetris-classifier", "demo-sentiment", replan_s=60.0)
    (workers,) = ended
    assert not workers._workers, "none is left"
    opened("tetris-classifier", "demo-sentiment").close()
