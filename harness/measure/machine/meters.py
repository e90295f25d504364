"""Memory and energy of one trial.

Peak memory on a CPU: the resident set's peak (VmHWM), reset when the trial begins by writing 5 to
/proc/PID/clear_refs, summed over the engine's processes. The peaks need not coincide and shared
pages count in each, so with several processes the sum is an upper bound. On a GPU: device memory of
the engine's processes when the load has ended; the allocators of PyTorch and vLLM do not give
memory back, so that is the peak. Energy: NVML's counter, difference over the load, whole devices.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.measure.machine import gpu

RESET_PEAK = "5"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a trial took. None: the machine cannot tell."""

    peak_memory_bytes: int | None
    energy_j: float | None


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a loaded engine occupies, in bytes."""

    resident: int
    device: int = 0


class Meter:
    """Measures the trials of one engine. Make it before the engine is loaded.

    `excluded`: a child process that is not the engine's.
    """

    def __init__(self, excluded: int | None = None) -> None:
        self._excluded = excluded
        self._device_before = gpu.memory_used()
        self._energy_before: float | None = None

    def start(self) -> None:
        """Begin a trial: forget earlier peaks, note the energy counter."""
        for pid in self._pids():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)
        self._energy_before = gpu.energy_j()

    def read(self) -> Reading:
        """What was taken since `start`."""
        now = gpu.energy_j()
        energy = None if now is None or self._energy_before is None else now - self._energy_before
        device = self._device_memory()
        peak = sum(_status_bytes(pid, "VmHWM") for pid in self._pids()) or None
        return Reading(peak if device is None else device, energy)

    def footprint(self) -> Footprint:
        """What the engine occupies now."""
        resident = sum(_status_bytes(pid, "VmRSS") for pid in self._pids())
        return Footprint(resident, self._device_memory() or 0)

    def _pids(self) -> set[int]:
        """This process and its descendants, the excluded one aside."""
        return {os.getpid(), *(c.pid for c in psutil.Process().children(True))} - {self._excluded}

    def _device_memory(self) -> int | None:
        """The engine's; where the driver knows no processes, the growth since before loading."""
        if self._device_before is None:
            return None
        used = gpu.memory_used(self._pids())
        if used is None:
            used = (gpu.memory_used() or 0) - self._device_before
        return used if used > 0 else None


def available_memory() -> int:
    """Bytes that can be taken without swapping, within the container's limit if there is one."""
    available = int(psutil.virtual_memory().available)
    root = Path("/sys/fs/cgroup")
    version_2 = (root / "memory.max", root / "memory.current", root / "memory.stat")
    version_1 = (
        root / "memory/memory.limit_in_bytes",
        root / "memory/memory.usage_in_bytes",
        root / "memory/memory.stat",
    )
    for limit, usage, stat in (version_2, version_1):
        with contextlib.suppress(OSError, ValueError):  # absent, or "max"
            free = int(limit.read_text()) - int(usage.read_text())
            # The page cache counts as used, but the kernel gives it back when asked.
            available = min(available, free + _field(stat, "inactive_file"))
    return max(available, 0)


def total_memory() -> int:
    """Bytes of memory that the machine has, or the container's limit where that is less."""
    total = int(psutil.virtual_memory().total)
    root = Path("/sys/fs/cgroup")
    for limit in (root / "memory.max", root / "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # absent, or "max"
            total = min(total, int(limit.read_text()))
    return total


def oom_kills() -> int:
    """Processes the kernel has killed for want of memory, in this container or on the machine."""
    events = Path("/sys/fs/cgroup/memory.events")
    return _field(events if events.exists() else Path("/proc/vmstat"), "oom_kill")


def _status_bytes(pid: int, name: str) -> int:
    """A memory field of /proc/PID/status; 0 when the process is gone."""
    return _field(Path(f"/proc/{pid}/status"), name + ":") * 1024


def _field(path: Path, name: str) -> int:
    """The number behind `name` in a file of lines ``name number``; 0 when there is none."""
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            words = line.split()
            if words and words[0] == name:
                return int(words[1])
    return 0
