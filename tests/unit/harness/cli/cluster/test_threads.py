"""How many threads engines on a node have: those of a run without Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from harness.cli.cluster.node import NodeWorker
from harness.measure.machine import tuning

THREADS = "OMP_NUM_THREADS"


@pytest.mark.parametrize(
    ("raylet", "kept"),
    [({}, False), ({THREADS: "1"}, True), (None, True)],
    ids=["set by Ray", "set by who started the node", "no Ray"],
)
def test_a_number_of_threads_that_ray_has_set_is_none_of_an_engine_s(
    raylet: Mapping[str, str] | None, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(THREADS, "1")
    monkeypatch.setitem(tuning.STARTED_WITH, THREADS, "1")
    monkeypatch.delenv("RAY_RAYLET_PID", raising=False)
    code = "print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=raylet
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        if raylet is not None:
            monkeypatch.setenv("RAY_RAYLET_PID", str(process.pid))
        state = NodeWorker("here", None).describe([])
        process.communicate(b"\n")
    assert (THREADS in os.environ) == kept
    assert (THREADS in state.environment["variables"]) == kept
