"""Memory and energy of one trial.

Peak memory on a CPU: the resident set's peak (VmHWM), reset when the trial begins by writing 5 to
/proc/PID/clear_refs, summed over the engine's processes. The peaks need not coincide and shared
pages count in each, so with several processes the sum is an upper bound. On a machine with a GPU:
device memory of the engine's processes when the load has ended; the allocators of PyTorch and vLLM
do not give memory back, so that is the peak. Energy: NVML's counter, difference over the load, of
the whole devices that the engine is on.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from harness.measure.machine import gpu
from harness.measure.machine.placement import Placement

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
        self._placement = Placement()
        self._on: tuple[int, ...] = ()
        self._energy_before: float | None = None

    def wake(self) -> None:
        """A trial of this engine is prepared: what others have loaded until now is not its own."""
        self._placement.wake()

    def gpus(self) -> tuple[int, ...]:
        """Places of the engine's devices among the visible ones (`gpu.devices`)."""
        self._placement.settle()
        return self._placement.gpus(self._pids())

    def start(self) -> None:
        """Begin a trial: forget earlier peaks, note the energy counter."""
        for pid in self._pids():
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)
        self._on = self.gpus()
        self._energy_before = gpu.energy_j(self._on)

    def read(self) -> Reading:
        """What was taken since `start`."""
        now = gpu.energy_j(self._on)
        energy = None if now is None or self._energy_before is None else now - self._energy_before
        if gpu.devices():  # where the device does not tell, the host's memory is no answer
            return Reading(self._device_memory(), energy)
        peak = sum(_status_bytes(pid, "VmHWM") for pid in self._pids())
        return Reading(peak or None, energy)

    def footprint(self) -> Footprint:
        """What the engine occupies now."""
        resident = sum(_status_bytes(pid, "VmRSS") for pid in self._pids())
        return Footprint(resident, self._device_memory() or 0)

    def _pids(self) -> set[int]:
        return family(os.getpid()) - {self._excluded}

    def _device_memory(self) -> int | None:
        self._placement.settle()
        return self._placement.memory(self._pids())


def family(pid: int) -> set[int]:
    """A process and its descendants; itself alone once it is gone."""
    found = {pid}
    with contextlib.suppress(psutil.Error):
        found.update(child.pid for child in psutil.Process(pid).children(recursive=True))
    return found


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
