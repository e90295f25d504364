"""What control groups allow a process of the processors, and what that costs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.core.processes import cores
from harness.core.processes.cores import cpu_quota, held_back_s, usable_cores


def cgroup(root: Path, lines: str, **files: str) -> Path:
    """A made-up /proc and /sys/fs/cgroup; a file's name has two underscores for each slash."""
    for name, content in {"proc__self__cgroup": lines, **files}.items():
        path = root / name.replace("__", "/").replace("cpu_", "cpu.", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_the_quota_of_a_control_group(tmp_path: Path) -> None:
    """Version 2: the least of the process's own group and those around it."""
    root = cgroup(
        tmp_path,
        "0::/user/job\n",
        sys__fs__cgroup__user__job__cpu_max="max 100000\n",
        sys__fs__cgroup__user__cpu_max="150000 100000\n",
        sys__fs__cgroup__cpu_max="400000 100000\n",
    )
    assert cpu_quota(root) == 1.5


def test_the_quota_of_an_older_control_group_seen_from_a_container(tmp_path: Path) -> None:
    root = cgroup(
        tmp_path,
        "5:memory:/x\n4:cpuacct,cpu:/docker/1234\n0::/\n",
        sys__fs__cgroup__cpu__cpu_cfs_quota_us="50000\n",
        sys__fs__cgroup__cpu__cpu_cfs_period_us="100000\n",
    )
    assert cpu_quota(root) == 0.5
    (root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_quota(root) is None


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert held_back_s(tmp_path) == 0.0
    assert cpu_quota(cgroup(tmp_path, "0::/\n", sys__fs__cgroup__cpu_max="max 100000\n")) is None


def test_what_a_quota_held_back_is_that_of_all_groups_around(tmp_path: Path) -> None:
    root = cgroup(
        tmp_path,
        "0::/user/job\n",
        sys__fs__cgroup__user__job__cpu_stat="usage_usec 9\nnr_periods 70\nthrottled_usec 250000\n",
        sys__fs__cgroup__user__cpu_stat="usage_usec 9\nthrottled_usec 1000000\n",
        sys__fs__cgroup__cpu_stat="usage_usec 9\n",
    )
    assert held_back_s(root) == pytest.approx(1.25)


def test_what_an_older_groups_quota_held_back_is_in_nanoseconds(tmp_path: Path) -> None:
    root = cgroup(
        tmp_path,
        "4:cpuacct,cpu:/docker/1234\n",
        sys__fs__cgroup__cpu__cpu_stat="nr_periods 7\nnr_throttled 3\nthrottled_time 1500000000\n",
    )
    assert held_back_s(root) == pytest.approx(1.5)
    (root / "sys/fs/cgroup/cpu/cpu.stat").write_text("throttled_time nothing\n")
    assert held_back_s(root) == 0.0


@pytest.mark.parametrize(
    ("quota", "count"), [(None, 8), (0.5, 1), (1.0, 1), (1.5, 2), (3.001, 4), (64.0, 8)]
)
def test_no_more_threads_run_at_once_than_the_quota_is_worth(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, count: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    assert usable_cores() == count
