"""Where the workers of a classifier's pipeline are: told, named, and refused where they differ."""

from __future__ import annotations

from typing import Any

import pytest

from backends.tetris.workers.piped_stages import StageDiedError
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
