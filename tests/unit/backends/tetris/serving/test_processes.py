"""The processes of stages: none outlives its parent, and one that keeps dying is given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from backends import check_options, open_backend
from backends.checkpoints import models
from backends.tetris.serving.processes import StageProcesses
from harness.core.errors import UserError
from harness.core.nouns import Model, Request
from tests.support.harness.sweeping import gone, wait_until

MODEL = Model("demo")
PARENT = """
import sys, time
from backends import open_backend
from backends.checkpoints import models
from harness.core.nouns import Model
backend = open_backend("tetris", models.resolve(Model("demo")), Model("demo"), {"threads": 1})
print(*backend._executor.pids(), flush=True)
time.sleep(600)
"""


def opened(**options: Any) -> tuple[Any, StageProcesses]:
    backend = open_backend("tetris", models.resolve(MODEL), MODEL, {"threads": 1, **options})
    processes = vars(backend)["_executor"]
    assert isinstance(processes, StageProcesses)
    return backend, processes


def poll_often(backend: Any) -> None:
    for _ in range(40):
        backend.poll()


def open_files() -> int:
    return int(psutil.Process().num_fds())


def test_no_process_is_left_after_the_end() -> None:
    opened()[0].close()  # what a first opening keeps, such as loaded libraries
    before = open_files()
    backend, processes = opened(stages=3)
    pids = processes.pids()
    assert len(set(pids)) == 3
    assert all(psutil.pid_exists(pid) for pid in pids)
    backend.close()
    assert all(map(gone, pids))
    assert open_files() == before


def test_no_process_is_left_when_the_parent_is_killed() -> None:
    root = Path(__file__).parents[5]
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=root)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert wait_until(lambda: all(map(gone, pids)), 20)


def test_a_stage_that_keeps_dying_is_given_up_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, processes = opened()
    start = processes._start

    def still_born(index: int) -> None:
        start(index)
        os.kill(processes.pids()[index], signal.SIGKILL)

    try:
        backend.submit(Request("a", (5, 6, 7), 20))
        backend.poll()
        monkeypatch.setattr(processes, "_start", still_born)
        os.kill(processes.pids()[1], signal.SIGKILL)
        with pytest.raises(RuntimeError, match=r"stage 2 ended with code -9; 6 died in a row"):
            poll_often(backend)
    finally:
        backend.close()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"stages": 0}, "option 'stages'"),
        (
            {"replicas": [2]},
            "option 'replicas': names workers of 1 stages; expected 2 (option 'stages')",
        ),
        ({"replicas": [2, 0]}, "option 'replicas': expected at least 1, got 0"),
        ({"replicas": [1.5, 1]}, "option 'replicas': expected whole numbers, got [1.5, 1]"),
        (
            {"replicas": [60, 5]},
            "option 'replicas': add up to 65 workers; expected at most 64",
        ),
        ({"replicas": 2}, "option 'replicas': expected list, got 2"),
        (
            {"stages": 4, "layers": [2, 4]},
            "option 'stages': 4 for ramps after [2, 4]; expected at most 3",
        ),
        (
            {"stages": 8},
            "option 'stages': 8 for ramps after [3, 4] (the calibration's, since 'layers' is auto);"
            " expected at most 3, or more 'layers'",
        ),
        ({"stages": 12}, "(the calibration's, since 'layers' is auto); expected at most 3\n"),
        (
            {"stages": 8, "threshold": 0.9},
            "option 'stages': 8 for ramps after [2, 4, 6] (since 'layers' is auto); expected at",
        ),
        (
            {"layers": [2], "threshold": 1.0},
            "option 'stages': 2 for no ramp that can be passed; expected at most 1",
        ),
        ({"kernels": "torch"}, "option 'kernels'"),
        ({"batch": 0}, "option 'batch'"),
        ({"measure": "static"}, "option 'measure'"),
        ({"max_model_len": 100_000}, "max_model_len 100000 exceeds the model's"),
        ({"layers": [9]}, "option 'layers'"),
        ({"stage": 2}, "did you mean 'stages'?"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as found:
        check_options("tetris", options, models.resolve(MODEL))
    assert told in f"{found.value}\n"
    assert len(str(found.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("device", "kernels", "expected"), [("cpu", "triton", "native"), ("cuda", "native", "triton")]
)
def test_kernels_of_another_device_are_one_line(
    device: str, kernels: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.tetris.serving.backend.device", lambda: device)
    told = f"'kernels': stages run on {device} here; expected auto or {expected}$"
    with pytest.raises(UserError, match=told):
        check_options("tetris", {"kernels": kernels}, models.resolve(MODEL))


def test_the_cuts_stand_where_ramps_are() -> None:
    from backends import settings
    from backends.tetris.serving.cut_plan import CutPlan

    def cuts(**options: Any) -> tuple[int, ...]:
        return CutPlan(models.resolve(MODEL), settings("tetris", options)).cuts()

    assert cuts(layers=[1, 2, 3, 5]) == (3,)
    assert cuts(layers=[1, 2, 3, 5], stages=3) == (2, 3)
    assert cuts(layers=[1, 2, 3, 5], stages=5) == (1, 2, 3, 5)
    assert cuts(layers=[6, 7], stages=3) == (6, 7)
    assert cuts(layers=[1, 2, 3, 5], stages=1) == ()
    assert cuts(measure="never", stages=4) == (2, 4, 6)
