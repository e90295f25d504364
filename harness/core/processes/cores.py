"""How much of the machine's processors this process may use: which cores, and what its control
groups allow it of their time."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePath


def own_cores() -> frozenset[int] | None:
    """Numbers of the cores that the calling thread may run on; None where the system does not
    say."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return frozenset(os.sched_getaffinity(0))


def usable_cores() -> int:
    """How many threads can run at once: the cores that the calling thread may run on, and no more
    than the quota is worth, rounded up."""
    own, quota = own_cores(), cpu_quota()
    count = (os.cpu_count() or 1) if own is None else len(own)
    return count if quota is None else min(count, math.ceil(quota))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time that the control groups around this process allow; None: no limit."""
    return min(_quotas(root), default=None)


def held_back_s(root: Path = Path("/")) -> float:
    """Seconds since their making, summed over cores, for which these groups' quotas have kept
    threads from running that could have; 0 without a quota."""
    return sum(_held_back_s(folder / "cpu.stat") for folder, _ in _groups(root))


def _groups(root: Path) -> Iterator[tuple[Path, int]]:
    """Folders of the groups that may limit processor time, and the version of their files."""
    top = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            # In a container the path is the host's: what is mounted is its own group, at the top.
            own = PurePath(group.lstrip("/"))
            for folder in (own, *own.parents):
                if not controllers:
                    yield top / folder, 2
                elif "cpu" in controllers.split(","):
                    yield top / "cpu" / folder, 1


def _quotas(root: Path) -> Iterator[float]:
    for folder, version in _groups(root):
        names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        yield from _quota([folder / name for name in names])


def _quota(files: list[Path]) -> Iterator[float]:
    """Of one group; nothing where it has none ("max", or -1)."""
    with contextlib.suppress(OSError, ValueError):
        allowed, period = (int(word) for file in files for word in file.read_text().split())
        if allowed > 0 and period > 0:
            yield round(allowed / period, 3)


def _held_back_s(stat: Path) -> float:
    """Of one group, in whichever unit its version counts."""
    with contextlib.suppress(OSError, ValueError):
        fields = (line.partition(" ") for line in stat.read_text().splitlines())
        told = {name: value for name, _, value in fields}
        return int(told.get("throttled_usec", 0)) / 1e6 + int(told.get("throttled_time", 0)) / 1e9
    return 0.0
