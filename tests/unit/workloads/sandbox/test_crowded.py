"""A verdict is the program's own, however many run beside it on however small a share."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from workloads.sandbox import runner
from workloads.sandbox.cpus import usable_cpus
from workloads.sandbox.runner import SandboxResult, UntrustedProgram, run_programs

LATE = SandboxResult(passed=False, reason="time limit of 5 s", out_of_time=True)


class CrowdedMachine:
    """Stands in for `run_program`: programs run out of time the first time, together."""

    def __init__(self, ends: bool) -> None:
        self._ends = ends
        self._meet = threading.Barrier(2)
        self.together: list[str] = []
        self.alone: list[str] = []

    def run(self, program: UntrustedProgram, *, timeout_s: float) -> SandboxResult:
        if program.source in self.together:
            assert threading.current_thread() is threading.main_thread()
            self.alone.append(program.source)
            return SandboxResult(passed=True) if self._ends else LATE
        self.together.append(program.source)
        self._meet.wait(timeout=60)
        return SandboxResult(passed=False) if program.source == "wrong" else LATE


@pytest.mark.parametrize("ends", [True, False])
def test_what_runs_out_of_time_runs_once_more_alone(
    monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    machine = CrowdedMachine(ends)
    monkeypatch.setattr(runner, "run_program", machine.run)
    monkeypatch.setattr(runner, "usable_cpus", lambda: 2)
    programs = [UntrustedProgram(source, "") for source in ("a", "wrong", "b", "c")]
    results = run_programs(programs, timeout_s=5)
    assert [result.passed for result in results] == [ends, False, ends, ends]
    assert machine.alone == ["a", "b", "c"]


def test_a_program_that_never_ends_is_late_and_a_wrong_one_is_not() -> None:
    endless, wrong = run_programs(
        [UntrustedProgram("while True: pass", ""), UntrustedProgram("x = 1 / 0", "")], timeout_s=0.5
    )
    assert (endless.passed, endless.out_of_time) == (False, True)
    assert (wrong.passed, wrong.out_of_time) == (False, False)


def _groups(root: Path, membership: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(membership)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


QUOTAS = {
    "none": ("0::/\n", {}, 8),
    "version 2, no limit": ("0::/a\n", {"a/cpu.max": "max 100000\n"}, 8),
    "version 2": ("0::/a\n", {"a/cpu.max": "250000 100000\n"}, 2),
    "a parent's": ("0::/a/b\n", {"a/cpu.max": "300000 100000\n"}, 3),
    "of a container": ("0::/host/path\n", {"cpu.max": "400000 100000\n"}, 4),
    "less than one": ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
    "more than there are": ("0::/\n", {"cpu.max": "1600000 100000\n"}, 8),
    "version 1": (
        "4:cpu,cpuacct:/a\n3:memory:/a\n",
        {"cpu/a/cpu.cfs_quota_us": "200000\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
        2,
    ),
    "version 1, no limit": (
        "4:cpu:/a\n",
        {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"},
        8,
    ),
    "odd": ("nonsense\n", {"cpu.max": "many of them\n"}, 8),
}


@pytest.mark.parametrize(("membership", "files", "count"), QUOTAS.values(), ids=QUOTAS.keys())
@pytest.mark.usefixtures("eight")
def test_quotas_bound_the_programs_side_by_side(
    tmp_path: Path, membership: str, files: dict[str, str], count: int
) -> None:
    assert usable_cpus(_groups(tmp_path, membership, files)) == count
