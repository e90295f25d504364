"""kill -9 of a command while it has the machine's ceilings measured: nothing goes on by itself."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from tests.support.harness.command import ROOT, environment

MEASURES = "from harness.cli.doctor import measure_apart; measure_apart()"
STARTS_S = 60
GONE_S = 15
"""Less than what is measured takes."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part is Linux's"),
]


def child_of(command: subprocess.Popen[bytes]) -> psutil.Process:
    end = time.monotonic() + STARTS_S
    while not (found := psutil.Process(command.pid).children()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found[0]


def test_a_measurement_ends_with_the_command_that_wants_it() -> None:
    command = subprocess.Popen([sys.executable, "-c", MEASURES], cwd=ROOT, env=environment())
    measurement = child_of(command)
    command.kill()
    command.wait()
    _, alive = psutil.wait_procs([measurement], GONE_S)
    for process in alive:
        process.kill()
    assert not alive
