"""A stand-in for NVML: no GPU is needed, and none is touched."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.measure.machine import gpu

GIB = 2**30
NOBODY = 2**22 + 1
"""Larger than the kernel's largest number of a process: as of one that the driver
lists by the host's numbers, seen from a container."""
SLICE, SLICE_UUID = 1000, "MIG-cccc-3"
"""A part of device 1: its handle and its name."""


class FakeNvml:
    """Two devices of 80 GiB."""

    class NVMLError(Exception):
        pass

    class NVMLError_NotFound(NVMLError):  # noqa: N801, N818, its name there
        pass

    class NVMLError_NotSupported(NVMLError):  # noqa: N801, N818, its name there
        pass

    def __init__(self) -> None:
        self.names: list[bytes | str] = [b"NVIDIA H100", "NVIDIA H200"]
        self.lost: set[int] = set()
        self.energy: list[float | None] = [1_000_000.0, 500_000.0]
        self.used: list[int | None] = [GIB, 2 * GIB]
        """None: the device shares the host's memory."""
        self.processes: list[list[Any] | None] = [[], []]
        """By device; None where the driver does not tell."""
        self.computed: list[dict[int, int] | None] = [{}, {}]
        """By device: by process, in percent; None where the device does not tell."""
        self.reasons = [0, 0]
        self.violations: list[int | None] = [0, 0]
        self.busy: list[int | None] = [0, 0]
        """In percent; None where the device does not tell."""

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self.lost:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid != SLICE_UUID:
            raise self.NVMLError_NotFound
        return SLICE

    def nvmlDeviceIsMigDeviceHandle(self, handle: int) -> int:
        return int(handle == SLICE)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: int) -> int:
        assert handle == SLICE
        return 1

    def nvmlDeviceGetName(self, handle: int) -> bytes | str:
        return "NVIDIA H200 MIG 1g.18gb" if handle == SLICE else self.names[handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return ["GPU-aaaa-1", "GPU-bbbb-2"][handle]

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> list[int]:
        return [[9, 0], [8, 9]][self.whole(handle)]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.1"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        if handle == SLICE:
            return SimpleNamespace(total=18 * GIB, used=GIB, free=17 * GIB)
        used = self.told(self.used[handle])
        return SimpleNamespace(total=80 * GIB, used=used, free=80 * GIB - used)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        found: list[Any] = [] if handle == SLICE else self.told(self.processes[handle])
        return found

    def nvmlDeviceGetProcessUtilization(self, handle: int, since_us: int) -> list[Any]:
        assert since_us > 1.7e15, "microseconds of the wall clock"
        computed = self.told(self.computed[self.whole(handle)])
        if not computed:
            raise self.NVMLError_NotFound
        return [SimpleNamespace(pid=pid, smUtil=percent) for pid, percent in computed.items()]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=self.told(self.busy[self.whole(handle)]), memory=0)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> float:
        return float(self.told(self.energy[self.whole(handle)]))

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return self.reasons[self.whole(handle)]

    def nvmlDeviceGetViolationStatus(self, handle: int, policy: int) -> SimpleNamespace:
        thermal = self.told(self.violations[self.whole(handle)])
        # the power policy's counter, which the power cap keeps growing
        power = 10**12
        return SimpleNamespace(referenceTime=1, violationTime={0: power, 1: thermal}[policy])

    def told(self, value: Any) -> Any:
        if value is None:
            raise self.NVMLError_NotSupported
        return value

    def whole(self, handle: int) -> int:
        """A slice is not asked for what only a whole GPU tells."""
        if handle == SLICE:
            raise self.NVMLError_NotSupported
        return handle

    def put(self, device: int, *pids: int, memory: int | None = GIB) -> None:
        """The driver lists these processes, each with so many bytes."""
        self.processes[device] = [SimpleNamespace(pid=p, usedGpuMemory=memory) for p in pids]


def forget() -> None:
    """What was asked of NVML before."""
    gpu._nvml.cache_clear()
    gpu.devices.cache_clear()
