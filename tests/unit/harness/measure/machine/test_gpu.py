"""The GPU's meters against a stand-in for NVML: no GPU is needed, and none is touched."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from harness.measure.machine import gpu
from harness.measure.machine import snapshots as machine
from harness.measure.machine.meters import Meter
from harness.measure.machine.snapshots import GpuWatch, disturbance, machine_state
from tests.support.harness.sweeping import wait_until

GIB = 2**30


class FakeNvml:
    """Two devices of 80 GiB."""

    class NVMLError(Exception):
        pass

    class NVMLError_NotFound(NVMLError):  # noqa: N801, N818, its name there
        pass

    def __init__(self) -> None:
        self.energy: list[float | None] = [1_000_000.0, 500_000.0]
        self.used = [GIB, 2 * GIB]
        self.processes: list[list[Any]] = [[], []]
        self.computed: list[dict[int, int] | None] = [{}, {}]
        """By device: by process, in percent; None where the device does not tell."""
        self.reasons = [0, 0]
        self.violations: list[int | None] = [0, 0]
        self.busy: list[int | None] = [0, 0]
        """In percent; None where the device does not tell."""

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes | str:
        return "NVIDIA H200" if handle else b"NVIDIA H100"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return ["GPU-aaaa-1", "GPU-bbbb-2"][handle]

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> list[int]:
        return [[9, 0], [8, 9]][handle]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.1"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        used = self.used[handle]
        return SimpleNamespace(total=80 * GIB, used=used, free=80 * GIB - used)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return self.processes[handle]

    def nvmlDeviceGetProcessUtilization(self, handle: int, since_us: int) -> list[Any]:
        assert since_us > 1.7e15, "microseconds of the wall clock"
        computed = self.computed[handle]
        if computed is None:
            raise self.NVMLError("not supported")
        if not computed:
            raise self.NVMLError_NotFound
        return [SimpleNamespace(pid=pid, smUtil=percent) for pid, percent in computed.items()]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        if (busy := self.busy[handle]) is None:
            raise self.NVMLError("not supported")
        return SimpleNamespace(gpu=busy, memory=0)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> float:
        energy = self.energy[handle]
        if energy is None:
            raise self.NVMLError("not supported")
        return energy

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return self.reasons[handle]

    def nvmlDeviceGetViolationStatus(self, handle: int, policy: int) -> SimpleNamespace:
        thermal = self.violations[handle]
        if thermal is None:
            raise self.NVMLError("not supported")
        # the power policy's counter, which the power cap keeps growing
        power = 10**12
        return SimpleNamespace(referenceTime=1, violationTime={0: power, 1: thermal}[policy])


def forget() -> None:
    gpu._nvml.cache_clear()
    gpu.devices.cache_clear()


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    forget()
    yield fake
    forget()


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    forget()
    yield
    forget()


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_every_answer_is_nothing() -> None:
    assert gpu.names() == []
    assert gpu.memory_total() == []
    assert gpu.driver() is None
    assert gpu.memory_free() is None
    assert gpu.memory_used() is None
    assert gpu.energy_j() is None
    assert gpu.throttled() == ()
    assert gpu.thermal_violation_s() == 0.0


def test_names_driver_and_memory(nvml: FakeNvml) -> None:
    assert gpu.names() == ["NVIDIA H100", "NVIDIA H200"]
    assert gpu.driver() == "570.1"
    assert gpu.memory_total() == [80 * GIB, 80 * GIB]
    assert gpu.memory_free() == 78 * GIB


def test_the_least_capable_device_counts(nvml: FakeNvml) -> None:
    assert gpu.compute_capability() == (8, 9)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", ["NVIDIA H200"]),
        ("1,0", ["NVIDIA H200", "NVIDIA H100"]),
        ("GPU-bbbb", ["NVIDIA H200"]),
        ("", []),
        ("-1", []),
        ("0,7,1", ["NVIDIA H100"]),
    ],
)
def test_only_visible_devices_count(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str, expected: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu.names() == expected


def test_throttle_reasons_that_matter(nvml: FakeNvml) -> None:
    nvml.reasons = [0x01 | 0x02 | 0x04, 0x00]  # idle, settings, power cap: normal
    assert gpu.throttled() == ()
    nvml.reasons = [0x40, 0x08 | 0x40]
    assert gpu.throttled() == ("hardware slowdown", "hardware thermal slowdown")


def test_the_time_that_heat_took_is_counted_on_the_devices_that_count_it(nvml: FakeNvml) -> None:
    nvml.violations = [1_500_000_000, 250_000_000]
    assert gpu.thermal_violation_s() == pytest.approx(1.75)
    nvml.violations = [None, 250_000_000]
    assert gpu.thermal_violation_s() == pytest.approx(0.25)


def test_heat_between_two_states_is_told_whatever_the_clocks_are_then(nvml: FakeNvml) -> None:
    nvml.violations = [7_000_000_000, 0]
    before = machine_state()
    assert disturbance(before, machine_state()).gpu_throttled == ()
    nvml.violations = [7_250_000_000, 0]
    found = disturbance(before, machine_state(), ("hardware power brake",))
    assert found.gpu_throttled == ("hardware power brake", "thermal slowdown for 0.25 s")


def test_a_gpu_slowed_down_during_the_load_only_is_seen(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "WATCH_S", 0.001)
    with GpuWatch() as watch:
        nvml.reasons = [0x04, 0x80]  # the power cap, and another device's power brake
        assert wait_until(lambda: bool(watch.throttled), 30)
        nvml.reasons = [0x01, 0x01]
    assert watch.throttled == ("hardware power brake",)
    assert not watchers()


def test_a_load_shorter_than_the_watchs_turn_is_looked_at_when_it_ends(nvml: FakeNvml) -> None:
    with GpuWatch() as watch:
        nvml.reasons = [0, 0x40]
    assert watch.throttled == ("hardware thermal slowdown",)
    with pytest.raises(RuntimeError), GpuWatch():
        raise RuntimeError
    assert not watchers()


@pytest.mark.parametrize(
    ("busy", "share"), [([0, 90], 0.9), ([None, 35], 0.35), ([None, None], 0.0)]
)
def test_how_long_the_busiest_gpu_computed_is_seen(
    nvml: FakeNvml, busy: list[int | None], share: float
) -> None:
    with GpuWatch() as watch:
        nvml.busy = busy
    assert watch.busy == share
    state = machine_state()
    assert disturbance(state, state, gpu_busy=watch.busy).to_json()["gpu_busy"] == share


OURS, NEIGHBOUR, NOTEBOOK = 4711, 1, 2


@pytest.mark.parametrize(
    ("listed", "computed", "others"),
    [
        ([OURS], {OURS: 90}, 0),
        ([OURS, NEIGHBOUR], {OURS: 90, NEIGHBOUR: 30}, 1),
        ([OURS, NOTEBOOK], {OURS: 90, NOTEBOOK: 0}, 0),
        ([OURS, NEIGHBOUR], {}, 0),
        ([OURS, NEIGHBOUR], None, 1),
        ([OURS], {NEIGHBOUR: 5}, 0),
        ([NEIGHBOUR, NOTEBOOK], {NEIGHBOUR: 90}, 0),
    ],
    ids=["alone", "beside another", "which idles", "no samples", "not told", "graphics", "unknown"],
)
def test_who_else_computes_on_the_gpu_is_seen(
    nvml: FakeNvml, listed: list[int], computed: dict[int, int] | None, others: int
) -> None:
    """In a container the driver may list processes by the host's numbers: nothing is said then."""
    with GpuWatch() as watch:
        nvml.processes[1] = [SimpleNamespace(pid=pid, usedGpuMemory=GIB) for pid in listed]
        nvml.computed[1] = computed
    assert watch.others({OURS}) == others


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_nobody_watches() -> None:
    with GpuWatch() as watch:
        assert not watchers()
    assert watch.throttled == ()
    assert watch.busy == 0


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "gpu watch"]


def test_energy_is_a_difference_over_all_devices(nvml: FakeNvml) -> None:
    meter = Meter()
    meter.start()
    nvml.energy = [1_030_000.0, 520_000.0]
    assert meter.read().energy_j == pytest.approx(50.0)
    meter.start()
    nvml.energy = [1_030_000.0, 523_000.0]
    assert meter.read().energy_j == pytest.approx(3.0), "of the second trial alone"
    nvml.energy = [1_030_000.0, None]
    assert meter.read().energy_j is None


def test_peak_memory_is_that_of_the_engines_processes(nvml: FakeNvml) -> None:
    meter = Meter()
    nvml.processes = [
        [SimpleNamespace(pid=os.getpid(), usedGpuMemory=3 * GIB)],
        [
            SimpleNamespace(pid=os.getpid(), usedGpuMemory=4 * GIB),
            SimpleNamespace(pid=1, usedGpuMemory=50 * GIB),
            SimpleNamespace(pid=os.getpid(), usedGpuMemory=None),
        ],
    ]
    meter.start()
    assert meter.read().peak_memory_bytes == 7 * GIB
    assert meter.footprint().device == 7 * GIB


def test_in_a_container_the_growth_since_loading_stands_in(nvml: FakeNvml) -> None:
    """The driver lists processes by the host's numbers there: none of them is ours."""
    meter = Meter()
    nvml.used = [GIB + 10 * GIB, 2 * GIB]
    nvml.processes = [[SimpleNamespace(pid=1, usedGpuMemory=10 * GIB)], []]
    assert meter.read().peak_memory_bytes == 10 * GIB
    nvml.used = [GIB - 1, 2 * GIB]  # others have freed some since: that says nothing of ours
    assert meter.footprint().device == 0
