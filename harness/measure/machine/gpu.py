"""What NVIDIA's management library (NVML) says about the GPUs this process may use.

Every function answers with nothing (an empty list, None, 0) where there is no GPU, no driver or no
`pynvml`, and where the device does not support the question. None of them creates a CUDA context.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Set
from functools import cache
from typing import Any

THROTTLE_REASONS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of nvmlClocksThrottleReasons that mean a device ran slower than it should. Idle (0x01),
applied clock settings (0x02) and the power cap (0x04), normal under full load, are none of them."""
THERMAL_POLICY = 1
"""NVML_PERF_POLICY_THERMAL. The counter of the power policy (0) grows under the power cap too."""


@cache
def _nvml() -> Any:
    """The library, initialised, or None."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no module, no driver or a broken one: each is "no GPU" here
        return None
    return pynvml


@cache
def devices() -> tuple[Any, ...]:
    """NVML handles of the GPUs that CUDA_VISIBLE_DEVICES leaves visible; all if it is unset."""
    nvml = _nvml()
    if nvml is None:
        return ()
    count = nvml.nvmlDeviceGetCount()
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(handles)
    chosen = []
    for name in visible.split(","):
        match = _named(name.strip(), handles)
        if match is None:  # CUDA, too, ignores what follows the first invalid entry
            break
        chosen.append(match)
    return tuple(chosen)


def _named(name: str, handles: list[Any]) -> Any:
    """The handle with this index or (abbreviated) UUID."""
    if name.isdecimal():
        return handles[int(name)] if int(name) < len(handles) else None
    uuids = [_text(_nvml().nvmlDeviceGetUUID(handle)) for handle in handles]
    return next(
        (h for h, u in zip(handles, uuids, strict=True) if name and u.startswith(name)), None
    )


def names() -> list[str]:
    """Product names, one per visible device."""
    return [_text(_nvml().nvmlDeviceGetName(handle)) for handle in devices()]


def compute_capability() -> tuple[int, int]:
    """The least CUDA compute capability of the visible devices; (0, 0) without one."""
    found = [_nvml().nvmlDeviceGetCudaComputeCapability(handle) for handle in devices()]
    return min((int(major), int(minor)) for major, minor in found) if found else (0, 0)


def driver() -> str | None:
    """Version of the kernel driver."""
    return _text(_nvml().nvmlSystemGetDriverVersion()) if devices() else None


def memory_total() -> list[int]:
    """Bytes of memory, one per visible device."""
    return [int(_nvml().nvmlDeviceGetMemoryInfo(handle).total) for handle in devices()]


def memory_free() -> int | None:
    """Bytes free on the fullest visible device; None without one."""
    free = [int(_nvml().nvmlDeviceGetMemoryInfo(handle).free) for handle in devices()]
    return min(free) if free else None


def memory_used(pids: Set[int] | None = None) -> int | None:
    """Bytes in use on the visible devices, by these processes or (None) by all.

    None without a device, and for processes that the driver does not list: in a container it knows
    them by the host's numbers, and under Windows' driver model it does not know their memory.
    """
    if not devices():
        return None
    if pids is None:
        return sum(int(_nvml().nvmlDeviceGetMemoryInfo(handle).used) for handle in devices())
    used = [
        process.usedGpuMemory
        for handle in devices()
        for process in _nvml().nvmlDeviceGetComputeRunningProcesses(handle)
        if process.pid in pids and process.usedGpuMemory is not None
    ]
    return sum(used) if used else None


def energy_j() -> float | None:
    """Joules drawn by the visible devices since the driver was loaded; None before Volta."""
    total = 0.0
    for handle in devices():
        millijoules = None
        with _ignoring_unsupported():
            millijoules = _nvml().nvmlDeviceGetTotalEnergyConsumption(handle)
        if millijoules is None:
            return None
        total += millijoules / 1000
    return total if devices() else None


def throttled() -> tuple[str, ...]:
    """Why a visible device runs below its clocks right now; see `THROTTLE_REASONS`."""
    found: set[str] = set()
    for handle in devices():
        with _ignoring_unsupported():
            bits = int(_nvml().nvmlDeviceGetCurrentClocksThrottleReasons(handle))
            found.update(text for bit, text in THROTTLE_REASONS.items() if bits & bit)
    return tuple(sorted(found))


def thermal_violation_s() -> float:
    """Seconds since the driver was loaded that heat has kept the visible devices below their
    clocks, summed; 0 for devices that do not count them."""
    total = 0.0
    for handle in devices():
        with _ignoring_unsupported():
            violation = _nvml().nvmlDeviceGetViolationStatus(handle, THERMAL_POLICY)
            total += int(violation.violationTime) / 1e9
    return total


def busy_share() -> float:
    """Share of the driver's last sampling period (a sixth of a second to one) in which the busiest
    visible device computed; 0 for devices that do not tell."""
    shares = [0.0]
    for handle in devices():
        with _ignoring_unsupported():
            shares.append(_nvml().nvmlDeviceGetUtilizationRates(handle).gpu / 100)
    return max(shares)


def holders() -> frozenset[int]:
    """Ids of the processes that are ready to compute on a visible device, as the driver lists them
    (see `memory_used`)."""
    found: set[int] = set()
    for handle in devices():
        found |= _holders(handle)
    return frozenset(found)


def computing(since_us: int) -> frozenset[int]:
    """Those of `holders` that have computed since then, in microseconds of the wall clock; all of
    them on a device that does not tell."""
    found: set[int] = set()
    for handle in devices():
        listed = _holders(handle)
        try:
            samples = _nvml().nvmlDeviceGetProcessUtilization(handle, since_us)
            found |= listed & {sample.pid for sample in samples if sample.smUtil}
        except _nvml().NVMLError_NotFound:  # no sample: nobody has
            continue
        except _nvml().NVMLError:
            found |= listed
    return frozenset(found)


def _holders(handle: Any) -> set[int]:
    with _ignoring_unsupported():
        return {p.pid for p in _nvml().nvmlDeviceGetComputeRunningProcesses(handle)}
    return set()


@contextlib.contextmanager
def _ignoring_unsupported() -> Iterator[None]:
    try:
        yield
    except _nvml().NVMLError:
        return


def _text(value: str | bytes) -> str:
    """Older releases of pynvml answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value
