"""Snapshots of the machine around a trial, for the verdict whether its numbers can be believed."""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from harness.measure.machine import gpu

PROBE_ROUNDS = 5
PROBE_LOOPS = 20_000
"""About 1 ms of interpreter work per round: long against the clock, short against a trial."""
WATCH_S = 0.5
"""Between looks at the GPUs during a load. A look is a few calls of NVML, which need no Python."""
CLOCK_OF_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Runs on while the machine sleeps, as the monotonic clock does not."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """One snapshot. CPU times are seconds summed over all cores since boot."""

    total_s: float
    """Time that all cores had."""
    busy_s: float
    steal_s: float
    """Time that the hypervisor gave to other guests."""
    own_s: float
    """CPU time of the sweep: this process, its parent, and their other descendants."""
    probe_s: float
    """Wall time of a fixed piece of work, median of a few rounds."""
    throttle_events: int
    """Thermal throttle events of all cores since boot."""
    gpu_throttled: tuple[str, ...] = ()
    """Why a GPU ran below its clocks at this moment."""
    gpu_thermal_s: float = 0.0
    """For how long heat has slowed GPUs down since the driver was loaded."""
    own: frozenset[int] = frozenset()
    """Ids of the sweep's processes."""
    asleep_s: float = 0.0
    """For how long the machine has slept since boot."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happened on the machine between two snapshots; shares are of all cores' time."""

    stolen_share: float
    others_share: float
    """Used by processes outside the sweep."""
    probe_ratio: float
    """The slower probe over the faster one: 1 on a steady machine."""
    throttle_events: int
    gpu_throttled: tuple[str, ...]
    gpu_others: int = 0
    """Processes outside the sweep that computed on a GPU that it computed on."""
    gpu_busy: float = 0.0
    """Share of the load's time in which a GPU computed."""
    asleep_s: float = 0.0
    """For how long the machine slept, which stops the clock that stamps are of."""

    def to_json(self) -> dict[str, Any]:
        """For the record's environment."""
        return {**asdict(self), "gpu_throttled": list(self.gpu_throttled)}


def machine_state() -> MachineState:
    """Take a snapshot; costs 5 to 15 ms, so never inside the timed window."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    steal = getattr(times, "steal", 0.0)
    # Guest time is already part of user and nice time.
    busy = times.user + times.nice + times.system + _optional(times, "irq", "softirq")
    own = _own_processes()
    return MachineState(
        total_s=idle + busy + steal,
        busy_s=busy,
        steal_s=steal,
        own_s=_cpu_s(own),
        probe_s=_probe(),
        throttle_events=_throttle_events(),
        gpu_throttled=gpu.throttled(),
        gpu_thermal_s=gpu.thermal_violation_s(),
        own=frozenset(process.pid for process in own),
        asleep_s=time.clock_gettime(CLOCK_OF_SLEEP) - time.clock_gettime(time.CLOCK_MONOTONIC),
    )


class GpuWatch:
    """Looks at the GPUs while a load runs: before and after it they idle, at whatever clocks.

    A thread of its own, every `WATCH_S` and once at the end; none where there is no GPU. Nothing
    like it is done for processors: their counters of time and of thermal events add up by
    themselves, and asking a core for its frequency interrupts it.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._holders: set[int] = set()
        self._computing: set[int] = set()
        self._busy: list[float] = []
        self._begin_us = time.time_ns() // 1000
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu watch", daemon=True)

    @property
    def throttled(self) -> tuple[str, ...]:
        """Every reason seen so far why a GPU ran below its clocks."""
        return tuple(sorted(self._seen))

    @property
    def busy(self) -> float:
        """Share of the time so far in which the busiest GPU computed."""
        return statistics.fmean(self._busy) if self._busy else 0.0

    def others(self, own: Set[int]) -> int:
        """How many processes other than these computed on the GPUs. 0 where none of these is among
        those that the driver lists: it may know them by other numbers, or they use no GPU."""
        return len(self._computing - own) if self._holders & own else 0

    def __enter__(self) -> Self:
        if gpu.devices():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        over = False
        while not over:
            over = self._over.wait(WATCH_S)
            self._seen.update(gpu.throttled())
            self._holders |= gpu.holders()
            self._computing |= gpu.computing(self._begin_us)
            self._busy.append(gpu.busy_share())


def disturbance(
    before: MachineState,
    after: MachineState,
    during: tuple[str, ...] = (),
    gpu_others: int = 0,
    gpu_busy: float = 0.0,
) -> Disturbance:
    """What lies between `before` and `after`; `during`: why GPUs were slow in between, which
    `gpu_others` other processes used and which computed for a share `gpu_busy` of the time."""
    heat = after.gpu_thermal_s - before.gpu_thermal_s
    counted = (f"thermal slowdown for {heat:.3g} s",) if heat > 0 else ()
    total = max(after.total_s - before.total_s, 1e-9)
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    probes = sorted([before.probe_s, after.probe_s])
    return Disturbance(
        stolen_share=max(after.steal_s - before.steal_s, 0.0) / total,
        others_share=max(others, 0.0) / total,
        probe_ratio=probes[1] / max(probes[0], 1e-9),
        throttle_events=max(after.throttle_events - before.throttle_events, 0),
        gpu_throttled=tuple(
            sorted({*before.gpu_throttled, *during, *after.gpu_throttled, *counted})
        ),
        gpu_others=gpu_others,
        gpu_busy=gpu_busy,
        asleep_s=after.asleep_s - before.asleep_s,
    )


def _optional(times: object, *names: str) -> float:
    return float(sum(getattr(times, name, 0.0) for name in names))


def _own_processes() -> list[psutil.Process]:
    """This process, its parent, and their other descendants."""
    parent = psutil.Process(os.getppid()) if os.getppid() > 1 else psutil.Process()
    return [parent, *parent.children(recursive=True)]


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _probe() -> float:
    rounds = []
    for _ in range(PROBE_ROUNDS):
        begin = time.perf_counter()
        value = 0
        for step in range(PROBE_LOOPS):
            value ^= step
        rounds.append(time.perf_counter() - begin)
    return statistics.median(rounds)


def _throttle_events() -> int:
    """Of cores and of whole packages; each core of a package tells the package's count."""
    total, packages = 0, dict[str, int]()
    for core in Path("/sys/devices/system/cpu").glob("cpu[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            total += int((core / "thermal_throttle/core_throttle_count").read_text())
        with contextlib.suppress(OSError, ValueError):
            count = int((core / "thermal_throttle/package_throttle_count").read_text())
            packages[(core / "topology/physical_package_id").read_text()] = count
    return total + sum(packages.values())
