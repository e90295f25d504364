"""Is the machine at work for somebody else, before anything is measured on it?"""

from __future__ import annotations

import os

from harness.measure.machine.processors import processor_time


class OthersWatch:
    """From its making on: how much of the processors' time other processes use."""

    def __init__(self) -> None:
        self._busy_s, self._total_s, self._own_s = _seconds()

    def share(self) -> float:
        """Of the time since then of the cores that this process may use, what processes other than
        this one and its children used, 0 to 1."""
        busy_s, total_s, own_s = _seconds()
        others = (busy_s - self._busy_s) - (own_s - self._own_s)
        return max(others, 0.0) / max(total_s - self._total_s, 1e-9)


def _seconds() -> tuple[float, float, float]:
    """Of these cores busy or stolen and in all, and this process's own, since boot."""
    found, own = processor_time(), os.times()
    own_s = own.user + own.system + own.children_user + own.children_system
    return found.busy_s + found.steal_s, found.total_s, own_s
