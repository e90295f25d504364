"""What is counted as whose processor time, from a made-up machine."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import psutil
import pytest

from harness.measure.machine import snapshots as machine
from harness.measure.machine.processors import ProcessorTime


def test_every_kind_of_processor_time_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guest time is part of user time already."""
    times = SimpleNamespace(
        user=1.0, nice=2.0, system=4.0, idle=8.0, iowait=16.0, irq=32.0, softirq=64.0, steal=128.0,
        guest=0.5, guest_nice=0.5,
    )  # fmt: skip
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu=False: [] if percpu else times)
    found = machine.machine_state()
    assert (found.total_s, found.busy_s, found.steal_s) == (255.0, 103.0, 128.0)
    least = SimpleNamespace(user=1.0, nice=2.0, system=4.0, idle=8.0)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu=False: [] if percpu else least)
    found = machine.machine_state()
    assert (found.total_s, found.busy_s, found.steal_s) == (15.0, 7.0, 0.0)


class Process:
    """A process with two children, one of which has just ended."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid

    def children(self, recursive: bool) -> list[Process]:
        assert recursive
        return [Process(1), Process(0)]

    def cpu_times(self) -> SimpleNamespace:
        if self.pid == 0:
            raise psutil.NoSuchProcess(0)
        share = 100.0 if self.pid == os.getppid() else 1.0
        return SimpleNamespace(
            user=share, system=2 * share, children_user=4 * share, children_system=8 * share
        )


def test_the_sweeps_own_time_is_that_of_all_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has ended is in the times of the children of those who waited for it."""
    monkeypatch.setattr(psutil, "Process", Process)
    assert machine.machine_state().own_s == 1500.0 + 15.0
    assert machine.machine_state().own == {os.getppid(), 0, 1}


def test_a_round_of_the_probe_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([10.0, 19.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ends))
    assert machine.probe_round_s() == 9.0


def test_a_machine_that_slept_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock, of which all stamps are, stands still meanwhile."""
    asleep_s, clock = 0.0, time.clock_gettime

    def sleeping(which: int) -> float:
        return clock(which) + asleep_s * (which == time.CLOCK_BOOTTIME)

    monkeypatch.setattr(time, "clock_gettime", sleeping)
    before = machine.machine_state()
    assert machine.disturbance(before, machine.machine_state()).asleep_s < 1
    asleep_s = 3600.0
    found = machine.disturbance(before, machine.machine_state()).asleep_s
    assert found == pytest.approx(3600, abs=1)


def test_a_state_is_of_the_own_cores_and_of_their_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([ProcessorTime(100.0, 10.0, 0.0), ProcessorTime(120.0, 14.0, 1.0)])
    held = iter([5.0, 5.0 + 3600.0])
    monkeypatch.setattr(machine, "processor_time", lambda: next(found))
    monkeypatch.setattr(machine, "held_s", lambda: next(held))
    before, after = machine.machine_state(()), machine.machine_state(())
    assert (after.total_s, after.busy_s, after.steal_s) == (120.0, 14.0, 1.0)
    assert after.at_s > before.at_s
    assert machine.disturbance(before, after).held_share == 1.0
