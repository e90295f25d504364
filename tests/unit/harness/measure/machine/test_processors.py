"""Whose processor time counts: that of the cores that the sweep may use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from harness.core.processes import cores
from harness.measure.machine import others, processors
from harness.measure.machine.processors import ProcessorTime, held_s, processor_time

ROOT = Path(__file__).parents[5]


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Of four cores, each of which was busy for ten times as long as the one before."""
    found = [SimpleNamespace(user=10.0**n, nice=0.0, system=0.0, idle=1.0) for n in range(4)]

    def told(percpu: bool = False) -> Any:
        return found if percpu else SimpleNamespace(user=5000.0, nice=0.0, system=0.0, idle=9.0)

    monkeypatch.setattr(psutil, "cpu_times", told)
    monkeypatch.setattr(processors, "ONLINE", tmp_path / "online")
    return found


@pytest.mark.parametrize(
    ("own", "busy_s", "total_s"),
    [
        ({0}, 1.0, 2.0),
        ({1, 3}, 1010.0, 1012.0),
        ({0, 1, 2, 3}, 1111.0, 1115.0),
        (None, 5000.0, 5009.0),
        ({2, 9}, 5000.0, 5009.0),
        (set(), 5000.0, 5009.0),
    ],
    ids=["one", "two", "all", "a system without affinity", "one that is not told", "none"],
)
@pytest.mark.usefixtures("times")
def test_rivals_on_other_cores_do_not_count(
    own: set[int] | None, busy_s: float, total_s: float
) -> None:
    assert processor_time(own) == ProcessorTime(total_s, busy_s, 0.0)


def test_cores_that_are_off_are_not_counted_through(times: list[Any]) -> None:
    processors.ONLINE.write_text("0,2-3,8\n")
    assert processor_time({2}).busy_s == 10.0
    assert processor_time({3, 8}).busy_s == 1100.0
    assert processor_time({1}).busy_s == 5000.0, "it is off"
    processors.ONLINE.write_text("0-127\n")  # the host's, while a container is told of its own
    assert processor_time({2}).busy_s == 100.0


def test_steal_is_that_of_the_own_cores(times: list[Any]) -> None:
    for number, one in enumerate(times):
        one.steal = float(number)
    found = processor_time({1, 2})
    assert (found.steal_s, found.total_s) == (3.0, 110.0 + 2.0 + 3.0)


def test_a_busy_machine_is_one_whose_own_cores_are(
    monkeypatch: pytest.MonkeyPatch, times: list[Any]
) -> None:
    monkeypatch.setattr(others, "processor_time", lambda: processor_time({0}))
    watch = others.OthersWatch()
    times[1].user += 100.0
    times[0].idle += 10.0
    assert watch.share() == pytest.approx(0.0, abs=0.05)
    times[0].user += 10.0
    assert watch.share() == pytest.approx(0.5, abs=0.05)


def test_an_engine_that_binds_its_threads_changes_nothing() -> None:
    """Asked in a process of its own, which goes to one core after it was started on all."""
    code = (
        "import os; from harness.measure.machine import processors; "
        "own = os.sched_getaffinity(0); os.sched_setaffinity(0, [max(own)]); "
        "print(processors.OWN == own)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(("quota", "share"), [(None, 6.0), (1.0, 6.0), (1.5, 3.0), (4.0, 1.5)])
def test_what_a_quota_held_back_is_told_for_each_core_that_it_is_worth(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, share: float
) -> None:
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    monkeypatch.setattr(cores, "held_back_s", lambda: 6.0)
    assert held_s() == share
