"""How many programs can run side by side without waiting for one another."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePath


def usable_cpus(root: Path = Path("/")) -> int:
    """Whole processors' worth of time that this process may use, at least one: those that it is
    bound to, as far as the quotas of the control groups around it go (a container's limit).

    Args:
        root: where /proc and /sys are.
    """
    bound = len(os.sched_getaffinity(0))
    return max(1, int(min([bound, *_quotas(root)])))


def _quotas(root: Path) -> Iterator[float]:
    """Processors that each group with a limit allows, of either version of control groups."""
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            of_version_2, group = not controllers, PurePath(name.lstrip("/"))
            if not of_version_2 and "cpu" not in controllers.split(","):
                continue
            # in a container the path is the host's, and what is mounted is its own group: the top
            for folder in (group, *group.parents):
                if of_version_2:
                    yield from _quota([root / "sys/fs/cgroup" / folder / "cpu.max"])
                else:
                    place = root / "sys/fs/cgroup/cpu" / folder
                    yield from _quota([place / "cpu.cfs_quota_us", place / "cpu.cfs_period_us"])


def _quota(files: list[Path]) -> Iterator[float]:
    """Quota over period, in two files or in one; nothing where there is no limit ("max", or -1)."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (int(word) for file in files for word in file.read_text().split())
        if quota > 0 and period > 0:
            yield quota / period
