"""Snapshots of the machine around a trial, for the verdict whether its numbers can be believed."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from harness.measure.machine import gpu
from harness.measure.machine.processors import held_s, processor_time

PROBE_ROUNDS = 5
PROBE_LOOPS = 20_000
"""About 1 ms of interpreter work per round: long against the clock, short against a trial."""
PROBE_S = 0.4
"""For so long at most a probe waits for a moment that is its own. Neighbours on a shared host come
for a tenth of a second at a time, which a trial averages out and a probe of 5 ms meets or not: on
such a host two medians of five rounds differed by over 25% in 30% of all pairs, and the fastest
rounds within this time by over 20% in 2% (LOG.md, 2026-11-29; `benchmarks/pace.py` has the latter
of any machine)."""
PROBE_NEAR, RECENT = 1.1, 4
"""A round that takes at most so much of the fastest that as many probes before it found was its
own: no need to wait further. The fastest ever is of clocks that a machine may have for a minute:
held against it, probes looked for 0.15 s each on a host where 0.015 s tell nearly as much (LOG.md,
2026-12-01)."""
WATCH_S = 0.5
"""Between looks at the GPUs during a load. A look is a few calls of NVML, which need no Python."""
CLOCK_OF_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Runs on while the machine sleeps, as the monotonic clock does not."""


@dataclass(frozen=True, slots=True)
class MachineState:
    """One snapshot. CPU times are seconds since boot, of all cores that the sweep may use."""

    total_s: float
    """Time that these cores had."""
    busy_s: float
    steal_s: float
    """Time that the hypervisor gave to other guests."""
    own_s: float
    """CPU time of the sweep: this process, its parent, and their other descendants."""
    probe_s: float
    """Wall time of a fixed piece of work that nothing held up (`Pace`)."""
    throttle_events: int
    """Thermal throttle events of all cores since boot."""
    gpu_throttled: tuple[str, ...] = ()
    """Why a GPU of the engine's ran below its clocks at this moment."""
    gpu_thermal_s: float = 0.0
    """For how long heat has slowed these GPUs down since the driver was loaded."""
    own: frozenset[int] = frozenset()
    """Ids of the sweep's processes."""
    asleep_s: float = 0.0
    """For how long the machine has slept since boot."""
    held_s: float = 0.0
    """For how long a quota has held threads back, for each core's worth of time that it allows."""
    at_s: float = 0.0
    """When, by the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happened on the machine between two snapshots; shares are of the time of the cores that
    the sweep may use."""

    stolen_share: float
    others_share: float
    """Used by processes outside the sweep."""
    probe_ratio: float
    """The slower probe over the faster one: 1 on a steady machine."""
    throttle_events: int
    gpu_throttled: tuple[str, ...]
    gpu_others: int | None = 0
    """Processes outside the sweep that computed on a GPU of the engine's; None: nobody knows."""
    gpu_busy: float = 0.0
    """Share of the load's time in which a GPU of the engine's computed."""
    asleep_s: float = 0.0
    """For how long the machine slept, which stops the clock that stamps are of."""
    held_share: float = 0.0
    """Share of the time for which a quota held threads back."""
    still_s: float = 0.0
    """For how long the process that drives the engine did not run though it should have."""

    def to_json(self) -> dict[str, Any]:
        """For the record's environment."""
        return {**asdict(self), "gpu_throttled": list(self.gpu_throttled)}


def machine_state(on: Collection[int] | None = None, *, load_begins: bool = False) -> MachineState:
    """Take a snapshot; costs 5 to 15 ms, and `PROBE_S` more at an engine's first and where a moment
    of its own is waited for, so never inside the timed window. `on`: places of the GPUs that count
    (`gpu.devices`); None: all. `load_begins`: the load begins behind it, not before: what is
    counted lies on the load's side of that wait."""
    probe_s = _PACE.undisturbed_s() if load_begins else None
    at_s, quota_s = time.clock_gettime(time.CLOCK_MONOTONIC), held_s()
    processors = processor_time()
    own = _own_processes()
    return MachineState(
        total_s=processors.total_s,
        busy_s=processors.busy_s,
        steal_s=processors.steal_s,
        own_s=_cpu_s(own),
        probe_s=_PACE.undisturbed_s() if probe_s is None else probe_s,
        throttle_events=_throttle_events(),
        gpu_throttled=gpu.throttled(on),
        gpu_thermal_s=gpu.thermal_violation_s(on),
        own=frozenset(process.pid for process in own),
        asleep_s=time.clock_gettime(CLOCK_OF_SLEEP) - time.clock_gettime(time.CLOCK_MONOTONIC),
        held_s=quota_s,
        at_s=at_s,
    )


def probe_round_s() -> float:
    """Seconds that a fixed piece of work took."""
    begin = time.perf_counter()
    value = 0
    for step in range(PROBE_LOOPS):
        value ^= step
    return time.perf_counter() - begin


class Pace:
    """How fast this machine is while nothing else holds it up: its clocks, and neighbours that
    stay. `round_s` does a fixed piece of work and gives the seconds that it took."""

    def __init__(self, round_s: Callable[[], float]) -> None:
        self._round_s = round_s
        self._recent_s: deque[float] = deque(maxlen=RECENT)
        """What the latest found."""

    def undisturbed_s(self) -> float:
        """The fastest of at least `PROBE_ROUNDS`, and of as many as fit into `PROBE_S` until one is
        near the fastest of the latest calls. The first one has nothing to go by, and looks for the
        whole time."""
        near_s = PROBE_NEAR * min(self._recent_s, default=0.0)
        fastest_s, spent_s, rounds = math.inf, 0.0, 0
        while rounds < PROBE_ROUNDS or (fastest_s > near_s and spent_s < PROBE_S):
            round_s = self._round_s()
            fastest_s, spent_s, rounds = min(fastest_s, round_s), spent_s + round_s, rounds + 1
        self._recent_s.append(fastest_s)
        return fastest_s


class GpuWatch:
    """Looks at the GPUs while a load runs: before and after it they idle, at whatever clocks.

    A thread of its own, every `WATCH_S` and once at the end; none where there is no GPU. Nothing
    like it is done for processors: their counters of time and of thermal events add up by
    themselves, and asking a core for its frequency interrupts it. `on`: places of the GPUs that
    count (`gpu.devices`); None: all.
    """

    def __init__(self, on: Collection[int] | None = None) -> None:
        self._on: Sequence[int] = range(len(gpu.devices())) if on is None else tuple(on)
        self._seen: set[str] = set()
        self._holders: dict[int, set[int]] = {place: set() for place in self._on}
        self._computing: dict[int, set[int]] = {place: set() for place in self._on}
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

    def others(self, own: Set[int]) -> int | None:
        """How many processes other than these computed on the GPUs. None where nobody knows: the
        driver lists none of these on one of the GPUs, since it knows them by other numbers."""
        told = [place for place in self._on if self._holders[place] & own]
        found = {pid for place in told for pid in self._computing[place]} - own
        return len(found) if found or len(told) == len(self._on) else None

    def __enter__(self) -> Self:
        if self._on:
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
            self._seen.update(gpu.throttled(self._on))
            for place in self._on:
                self._holders[place] |= gpu.holders(place)
                self._computing[place] |= gpu.computing(place, self._begin_us)
            self._busy.append(gpu.busy_share(self._on))


def disturbance(
    before: MachineState,
    after: MachineState,
    during: tuple[str, ...] = (),
    gpu_others: int | None = 0,
    gpu_busy: float = 0.0,
    still_s: float = 0.0,
) -> Disturbance:
    """What lies between `before` and `after`; `during`: why GPUs were slow in between, which
    `gpu_others` other processes used and which computed for a share `gpu_busy` of the time;
    `still_s`: of it the process that drives the engine stood still."""
    heat = after.gpu_thermal_s - before.gpu_thermal_s
    counted = (f"thermal slowdown for {heat:.3g} s",) if heat > 0 else ()
    total = max(after.total_s - before.total_s, 1e-9)
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    held = max(after.held_s - before.held_s, 0.0) / max(after.at_s - before.at_s, 1e-9)
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
        held_share=min(held, 1.0),  # more threads wait for it than it is worth cores
        still_s=still_s,
    )


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


_PACE = Pace(probe_round_s)


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
