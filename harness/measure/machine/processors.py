"""What the processors that the sweep may use spent their time on."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from harness.core.processes import cores

OWN = cores.own_cores()
"""As this process was started: an engine may bind the thread that asks to fewer."""
ONLINE = Path("/sys/devices/system/cpu/online")


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds since boot, summed over the cores that this process may use: what rivals do on other
    cores takes nothing away."""

    total_s: float
    """Time that these cores had."""
    busy_s: float
    steal_s: float
    """Time that the hypervisor gave to other guests."""


def processor_time(own: Collection[int] | None = OWN) -> ProcessorTime:
    """The time of these cores until now; of all where the system does not tell them apart."""
    times = _of(own) or [psutil.cpu_times()]
    idle = _seconds(times, "idle", "iowait")
    steal = _seconds(times, "steal")
    # Guest time is already part of user and nice time.
    busy = _seconds(times, "user", "nice", "system", "irq", "softirq")
    return ProcessorTime(idle + busy + steal, busy, steal)


def held_s() -> float:
    """Seconds for which a quota has held threads back, for each core's worth of time that it
    allows, since its control group was made."""
    return cores.held_back_s() / max(1, math.ceil(cores.cpu_quota() or 1))


def _of(own: Collection[int] | None) -> list[Any]:
    """The times of each of these cores; none where one is not to be found."""
    if own is None:
        return []
    every = psutil.cpu_times(percpu=True)
    numbers = _online()
    if len(numbers) != len(every):
        numbers = range(len(every))
    known = dict(zip(numbers, every, strict=True))
    return [known[core] for core in own] if known.keys() >= set(own) else []


def _online() -> Sequence[int]:
    """Numbers of the cores that are on, which need not follow on one another."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for part in ONLINE.read_text().strip().split(","):
            low, _, high = part.partition("-")
            found += range(int(low), int(high or low) + 1)
    return found


def _seconds(times: Sequence[Any], *names: str) -> float:
    return float(sum(getattr(one, name, 0.0) for one in times for name in names))
