"""What is asked of NVML, against a stand-in for it."""

from __future__ import annotations

import os

import psutil
import pytest

from harness.cli import wiring
from harness.core.processes.gpus import number_by_bus
from harness.measure.machine import gpu
from harness.measure.machine.environment import environment
from tests.support.harness.nvml import GIB, NOBODY, SLICE_UUID, FakeNvml, forget


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_every_answer_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu.names() == []
    assert gpu.memory_total() == []
    assert gpu.driver() is None
    assert gpu.memory_free() is None
    assert gpu.memory_free((0,)) is None
    assert gpu.memory_used() == []
    assert gpu.memory_of({1}) is None
    assert gpu.energy_j() is None
    assert gpu.throttled() == ()
    assert gpu.thermal_violation_s() == 0.0
    assert gpu.busy_share() == 0.0
    assert gpu.holding({1}) == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-of-another-machine")
    assert gpu.doubts() == []


def test_names_driver_and_memory(nvml: FakeNvml) -> None:
    assert gpu.names() == ["NVIDIA H100", "NVIDIA H200"]
    assert gpu.driver() == "570.1"
    assert gpu.memory_total() == [80 * GIB, 80 * GIB]
    assert gpu.memory_free() == 78 * GIB
    assert gpu.memory_free((0,)) == 79 * GIB
    assert gpu.memory_used() == [GIB, 2 * GIB]


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
        (SLICE_UUID, ["NVIDIA H200 MIG 1g.18gb"]),
        ("MIG-dddd-4", []),
    ],
)
def test_only_visible_devices_count(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str, expected: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu.names() == expected


def test_a_slice_is_a_gpu_with_its_own_memory_and_the_clocks_of_the_whole(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", SLICE_UUID)
    assert wiring.preferred_dtype() == "bfloat16"
    assert gpu.memory_total() == [18 * GIB]
    nvml.reasons, nvml.violations = [0x80, 0x40], [9_000_000_000, 500_000_000]
    assert gpu.throttled() == ("hardware thermal slowdown",)
    assert gpu.thermal_violation_s() == 0.5
    assert gpu.energy_j() is None, "the whole's is not its own"
    assert gpu.busy_share() == 0.0


@pytest.mark.parametrize(
    ("visible", "told"),
    [
        ("MIG-dddd-4", ["CUDA_VISIBLE_DEVICES=MIG-dddd-4 names none of the 2 GPUs that"]),
        ("7", ["CUDA_VISIBLE_DEVICES=7 names none of the 2 GPUs that the driver knows"]),
        ("-1", []),
        ("NoDevFiles", []),
        ("", []),
        ("0,7", []),
        (SLICE_UUID, []),
    ],
)
def test_a_name_that_is_no_gpus_is_told(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str, told: list[str]
) -> None:
    """What is hidden on purpose is not."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = wiring.warnings([])
    assert len(found) == len(told)
    assert all(line.startswith(begin) for line, begin in zip(found, told, strict=True))


@pytest.mark.parametrize(
    ("order", "visible", "names", "told"),
    [
        ("FASTEST_FIRST", None, ["A", "B"], 1),
        ("FASTEST_FIRST", "1", ["A", "B"], 1),
        ("FASTEST_FIRST", "GPU-bbbb", ["A", "B"], 0),
        ("FASTEST_FIRST", None, ["A", "A"], 0),
        ("PCI_BUS_ID", None, ["A", "B"], 0),
        (None, None, ["A", "B"], 0),
    ],
)
def test_an_order_of_the_users_is_told_where_it_matters(
    nvml: FakeNvml,
    monkeypatch: pytest.MonkeyPatch,
    order: str | None,
    visible: str | None,
    names: list[bytes | str],
    told: int,
) -> None:
    nvml.names = names
    for name, value in (("CUDA_DEVICE_ORDER", order), ("CUDA_VISIBLE_DEVICES", visible)):
        monkeypatch.setenv(name, value or "")
        if value is None:
            monkeypatch.delenv(name)
    found = gpu.doubts()
    assert len(found) == told
    assert all("CUDA_DEVICE_ORDER=FASTEST_FIRST: the GPUs are of several" in line for line in found)


def test_cuda_numbers_gpus_as_the_driver_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    number_by_bus()
    assert os.environ["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    number_by_bus()
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_a_lost_gpu_is_none_and_the_others_keep_their_numbers(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.lost = {0}
    assert gpu.names() == ["NVIDIA H200"]
    assert gpu.doubts() == []
    forget()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert gpu.names() == ["NVIDIA H200"]


def test_what_a_device_does_not_support_stops_nothing(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that shares the host's memory has that much; processes are told under Linux alone."""
    nvml.used, nvml.processes = [None, GIB], [None, None]
    total = psutil.virtual_memory().total
    assert gpu.memory_total() == [total, 80 * GIB]
    assert 0 < (gpu.memory_free((0,)) or 0) <= total
    assert gpu.memory_used() == [None, GIB]
    assert gpu.memory_of({1}) is None
    assert gpu.holders(0) == gpu.holders(1) == frozenset()
    assert [kind["memory_gib"] for kind in environment()["gpus"]] == [round(total / GIB), 80]
    for name in ("Name", "CudaComputeCapability", "CurrentClocksThrottleReasons"):
        monkeypatch.delattr(FakeNvml, f"nvmlDeviceGet{name}")
    monkeypatch.delattr(FakeNvml, "nvmlSystemGetDriverVersion")
    assert gpu.names() == ["unknown GPU"] * 2
    assert gpu.compute_capability() == (0, 0)
    assert gpu.driver() is None
    assert gpu.throttled() == ()


def test_throttle_reasons_that_matter(nvml: FakeNvml) -> None:
    nvml.reasons = [0x01 | 0x02 | 0x04, 0x00]  # idle, settings, power cap: normal
    assert gpu.throttled() == ()
    nvml.reasons = [0x40, 0x08 | 0x40]
    assert gpu.throttled() == ("hardware slowdown", "hardware thermal slowdown")
    assert gpu.throttled((0,)) == ("hardware thermal slowdown",)


def test_the_time_that_heat_took_is_counted_on_the_devices_that_count_it(nvml: FakeNvml) -> None:
    nvml.violations = [1_500_000_000, 250_000_000]
    assert gpu.thermal_violation_s() == pytest.approx(1.75)
    assert gpu.thermal_violation_s((1,)) == pytest.approx(0.25)
    nvml.violations = [None, 250_000_000]
    assert gpu.thermal_violation_s() == pytest.approx(0.25)


def test_processes_are_those_of_one_device(nvml: FakeNvml) -> None:
    nvml.put(0, NOBODY)
    nvml.put(1, 4711, 4712, memory=3 * GIB)
    assert gpu.holders(1) == {4711, 4712}
    assert gpu.holding({4712}) == (1,)
    assert gpu.memory_of({4712}) == 3 * GIB
    assert gpu.memory_of({1}) is None
