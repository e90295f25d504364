"""Stages on the nodes of a real Ray cluster on this machine; one is lost with its stage."""

from __future__ import annotations

import importlib.util
from typing import Any

import psutil
import pytest

from harness.core.backend import Backend
from tests.support.harness.ray_nodes import RayCluster, ray_cluster
from tests.support.harness.sweeping import gone, wait_until
from tests.unit.backends.tetris.serving.test_texts import answers, opened, reference, requests

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]
NODES = 3
EXITS: dict[str, Any] = {"layers": [3], "threshold": 0.5}


def raylet_of(pid: int) -> int:
    """Of the node on which an actor's process runs."""
    return psutil.Process(pid).ppid()


def test_a_lost_node_costs_no_answer() -> None:
    expected = reference(EXITS)
    with ray_cluster(NODES) as cluster:
        backend = opened("tetris", {**EXITS, "ray": cluster.address})
        stages: Any = vars(backend)["_executor"]
        first = stages.pids()
        assert len({raylet_of(pid) for pid in first}) == 2, "a node has one processor"
        lost: list[int] = []

        def lose(backend: Backend, tokens: int) -> None:
            if tokens > 200 and not lost:
                lose_a_stage(cluster, first)
                lost.append(tokens)

        try:
            found, _ = answers(backend, requests(), meanwhile=lose)
            assert lost
            assert found == expected
            assert stages.pids() != first
        finally:
            backend.close()


def lose_a_stage(cluster: RayCluster, pids: list[int]) -> None:
    """Nodes end until one of them had a stage."""
    for node in range(NODES):
        cluster.kill(node)
        if wait_until(lambda: any(map(gone, pids)), 5):
            return
    raise AssertionError("no node had a stage")
