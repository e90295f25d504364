"""Is the machine at work for somebody else, before anything is measured on it?"""

from __future__ import annotations

import os

import psutil


class OthersWatch:
    """From its making on: how much of the processors' time other processes use."""

    def __init__(self) -> None:
        self._busy_s, self._total_s, self._own_s = _seconds()

    def share(self) -> float:
        """Of all cores' time since then, what processes other than this one and its children used,
        0 to 1."""
        busy_s, total_s, own_s = _seconds()
        others = (busy_s - self._busy_s) - (own_s - self._own_s)
        return max(others, 0.0) / max(total_s - self._total_s, 1e-9)


def _seconds() -> tuple[float, float, float]:
    """Of all cores busy and in all, and this process's own, since boot."""
    times, own = psutil.cpu_times(), os.times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # guest time is part of user and nice time
    busy = times.user + times.nice + times.system
    busy += sum(getattr(times, name, 0.0) for name in ("irq", "softirq", "steal"))
    return busy, idle + busy, own.user + own.system + own.children_user + own.children_system
