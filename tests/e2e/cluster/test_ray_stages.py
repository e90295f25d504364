"""Stages on the nodes of a real Ray cluster on this machine; one is lost with its stage."""

from __future__ import annotations

import importlib.util
from typing import Any

import psutil
import pytest

from backends import check_options
from backends.checkpoints import models
from harness.core.backend import Backend
from harness.core.errors import UserError
from harness.core.nouns import Model
from tests.support.harness.ray_nodes import ray_cluster
from tests.support.harness.sweeping import gone, wait_until
from tests.unit.backends.tetris.serving.test_texts import answers, opened, reference, requests

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
NODES = 3
EXITS: dict[str, Any] = {"layers": [3], "threshold": 0.5}


def test_a_lost_node_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.tetris.live.devices.ANSWERS_S", 300.0)
    expected = reference(EXITS)
    with ray_cluster(NODES) as cluster:
        backend = opened("tetris", {**EXITS, "ray": cluster.address})
        stages: Any = vars(backend)["_executor"]
        first = stages.pids()
        nodes = [cluster.raylets.index(psutil.Process(pid).ppid()) for pid in first]
        assert len(set(nodes)) == 2, "a node has one processor"
        lost: list[int] = []

        def lose(backend: Backend, tokens: int) -> None:
            if tokens > 200 and not lost:
                lost.append(nodes[1])
                cluster.kill(nodes[1])
                assert wait_until(lambda: gone(first[1]), 120)

        try:
            assert backend.info.capabilities == {"other-machines"}
            found, _ = answers(backend, requests(), meanwhile=lose)
            assert found == expected
            assert stages.pids()[0] == first[0]
            there = psutil.Process(stages.pids()[1]).ppid()
            assert there in cluster.raylets
            assert there != cluster.raylets[nodes[1]]
        finally:
            backend.close()


def test_a_ray_of_this_machine_is_started_and_ended_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray

    monkeypatch.setattr("backends.tetris.live.devices.ANSWERS_S", 1.0)
    expected = reference(EXITS)
    backend = opened("tetris", {**EXITS, "ray": "local"})
    beside = opened("tetris", {**EXITS, "ray": "local", "replicas": [2, 1]})
    assert backend.info.capabilities == frozenset()
    backend.close()
    found, _ = answers(beside, requests())
    assert found == expected
    assert ray.is_initialized()
    with pytest.raises(UserError, match=r"'ray': 10\.0\.0\.1:9: "):
        opened("tetris", {**EXITS, "ray": "10.0.0.1:9"})
    beside.close()
    assert not ray.is_initialized()
    again = opened("tetris", {**EXITS, "ray": "local"})
    assert ray.is_initialized()
    again.close()
    assert not ray.is_initialized()


@pytest.mark.parametrize(("here", "resources"), [("cpu", {"GPU": 0.5}), ("cuda", {})])
def test_stages_may_run_on_what_this_process_has_not(
    here: str, resources: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.tetris.serving.backend.device", lambda: here)
    monkeypatch.setattr("backends.own.backend.device", lambda: here)
    options = {"ray": "local", "ray_resources": resources}
    check_options("tetris", options, models.resolve(Model("demo")))
