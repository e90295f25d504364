"""What NVIDIA's management library (NVML) says about the GPUs this process may use.

Every function answers with nothing (an empty list, None, 0) where there is no GPU, no driver or no
`pynvml`, and where the device does not support the question. None of them creates a CUDA context.
`on`: places in `devices` of those that are asked; None: all of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence, Set
from functools import cache
from typing import Any, NamedTuple

import psutil

from harness.core.processes.gpus import BY_BUS, ORDER, VISIBLE

HIDE_ALL = {"-1", "NoDevFiles"}
"""Values of `VISIBLE` by which GPUs are hidden on purpose, the second one by SLURM."""
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


class DeviceMemory(NamedTuple):
    """Bytes of one device's memory."""

    total: int
    free: int
    used: int | None
    """None where the device shares the host's memory, or does not tell."""


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
    """NVML handles of the GPUs that CUDA_VISIBLE_DEVICES leaves visible; all if it is unset. One
    that is lost, which CUDA cannot use either, is none."""
    handles = _all_devices()
    visible = os.environ.get(VISIBLE)
    if visible is None:
        return tuple(handle for handle in handles if handle is not None)
    chosen = []
    for name in visible.split(","):
        match = _named(name.strip(), handles)
        if match is None:  # CUDA, too, ignores what follows the first invalid entry
            break
        chosen.append(match)
    return tuple(chosen)


def _all_devices() -> list[Any]:
    """By NVML's numbers; None for a device that is lost."""
    count = _asked("nvmlDeviceGetCount") or 0
    return [_asked("nvmlDeviceGetHandleByIndex", index) for index in range(count)]


def _named(name: str, handles: list[Any]) -> Any:
    """The handle with this index or (abbreviated) UUID, also of a slice of a GPU (MIG)."""
    if name.isdecimal():
        return handles[int(name)] if int(name) < len(handles) else None
    if name.startswith("MIG-"):
        return _asked("nvmlDeviceGetHandleByUUID", name)
    uuids = [_text(_asked("nvmlDeviceGetUUID", handle) or "") for handle in handles]
    return next(
        (h for h, u in zip(handles, uuids, strict=True) if name and u.startswith(name)), None
    )


def doubts() -> list[str]:
    """What is odd about the variables that choose GPUs, a line each."""
    found: list[str] = []
    handles = [handle for handle in _all_devices() if handle is not None]
    visible, order = os.environ.get(VISIBLE, "").strip(), os.environ.get(ORDER, BY_BUS)
    if handles and visible and not devices() and visible not in HIDE_ALL:
        found.append(
            f"{VISIBLE}={visible} names none of the {len(handles)} GPUs that the driver knows: "
            "engines are taken to run on the CPU"
        )
    kinds = {_asked("nvmlDeviceGetName", handle) for handle in handles}
    numbered = not visible or any(name.strip().isdecimal() for name in visible.split(","))
    if order != BY_BUS and len(kinds) > 1 and numbered:
        found.append(
            f"{ORDER}={order}: the GPUs are of several kinds, and memory, energy and heat are read "
            f"from those with these numbers in the order of {BY_BUS}, which may be others than the "
            f"engines'; name GPUs by UUID in {VISIBLE}"
        )
    return found


def names() -> list[str]:
    """Product names, one per visible device."""
    return [_text(_asked("nvmlDeviceGetName", handle) or "unknown GPU") for handle in devices()]


def compute_capability() -> tuple[int, int]:
    """The least CUDA compute capability of the visible devices; (0, 0) without one."""
    told = [_asked("nvmlDeviceGetCudaComputeCapability", _chip(handle)) for handle in devices()]
    return min(((int(major), int(minor)) for major, minor in filter(None, told)), default=(0, 0))


def driver() -> str | None:
    """Version of the kernel driver."""
    told = _asked("nvmlSystemGetDriverVersion") if devices() else None
    return None if told is None else _text(told)


def memory_total() -> list[int]:
    """Bytes of memory, one per visible device; the host's where a device shares that."""
    return [_memory(handle).total for handle in devices()]


def memory_free(on: Collection[int] | None = None) -> int | None:
    """Bytes free on the fullest of these devices; None without one."""
    free = [_memory(handle).free for handle in _handles(on)]
    return min(free) if free else None


def memory_used() -> list[int | None]:
    """Bytes in use by whomever, one per visible device; None for one that does not tell."""
    return [_memory(handle).used for handle in devices()]


def memory_of(pids: Set[int]) -> int | None:
    """Bytes in use by these processes on the visible devices.

    None without a device, and for processes that the driver does not list: in a container it knows
    them by the host's numbers, and under Windows' driver model it does not know their memory.
    """
    used = [
        process.usedGpuMemory
        for handle in devices()
        for process in _processes(handle)
        if process.pid in pids and process.usedGpuMemory is not None
    ]
    return sum(used) if used else None


def energy_j(on: Collection[int] | None = None) -> float | None:
    """Joules drawn by these devices since the driver was loaded; None before Volta, and of a slice
    of a GPU."""
    total = 0.0
    handles = _handles(on)
    for handle in handles:
        millijoules = _asked("nvmlDeviceGetTotalEnergyConsumption", handle)
        if millijoules is None:
            return None
        total += millijoules / 1000
    return total if handles else None


def throttled(on: Collection[int] | None = None) -> tuple[str, ...]:
    """Why one of these devices runs below its clocks right now; see `THROTTLE_REASONS`."""
    found: set[str] = set()
    for handle in _handles(on):
        bits = int(_asked("nvmlDeviceGetCurrentClocksThrottleReasons", _chip(handle)) or 0)
        found.update(text for bit, text in THROTTLE_REASONS.items() if bits & bit)
    return tuple(sorted(found))


def thermal_violation_s(on: Collection[int] | None = None) -> float:
    """Seconds since the driver was loaded that heat has kept these devices below their clocks,
    summed; 0 for devices that do not count them."""
    chips = [_chip(handle) for handle in _handles(on)]
    told = [_asked("nvmlDeviceGetViolationStatus", chip, THERMAL_POLICY) for chip in chips]
    return sum((int(one.violationTime) / 1e9 for one in told if one is not None), 0.0)


def busy_share(on: Collection[int] | None = None) -> float:
    """Share of the driver's last sampling period (a sixth of a second to one) in which the busiest
    of these devices computed; 0 for devices that do not tell."""
    told = [_asked("nvmlDeviceGetUtilizationRates", handle) for handle in _handles(on)]
    return max((rates.gpu / 100 for rates in told if rates is not None), default=0.0)


def holders(place: int) -> frozenset[int]:
    """Ids of the processes that are ready to compute on one device, as the driver lists them (see
    `memory_of`)."""
    return frozenset(process.pid for process in _processes(devices()[place]))


def holding(pids: Set[int]) -> tuple[int, ...]:
    """Places of the devices on which one of these processes is ready to compute."""
    return tuple(place for place in range(len(devices())) if holders(place) & pids)


def computing(place: int, since_us: int) -> frozenset[int]:
    """Those of `holders` that have computed since then, in microseconds of the wall clock; all of
    them on a device that does not tell."""
    listed, nvml = holders(place), _nvml()
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(devices()[place], since_us)
    except nvml.NVMLError_NotFound:  # no sample: nobody has
        return frozenset()
    except nvml.NVMLError:
        return listed
    return listed & {sample.pid for sample in samples if sample.smUtil}


def _handles(on: Collection[int] | None) -> Sequence[Any]:
    found = devices()
    return found if on is None else [found[place] for place in on if place < len(found)]


def _chip(handle: Any) -> Any:
    """The whole GPU where this is a slice of one: clocks and heat are the whole's."""
    if not _asked("nvmlDeviceIsMigDeviceHandle", handle):
        return handle
    whole = _asked("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    return handle if whole is None else whole


def _memory(handle: Any) -> DeviceMemory:
    nvml = _nvml()
    try:
        told = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NotSupported:  # it has none of its own
        host = psutil.virtual_memory()
        return DeviceMemory(int(host.total), int(host.available), None)
    except nvml.NVMLError:
        return DeviceMemory(0, 0, None)
    return DeviceMemory(int(told.total), int(told.free), int(told.used))


def _processes(handle: Any) -> Sequence[Any]:
    found: Sequence[Any] = _asked("nvmlDeviceGetComputeRunningProcesses", handle) or ()
    return found


def _asked(name: str, *arguments: Any) -> Any:
    """What NVML answers to a function of this name; None where it does not."""
    nvml = _nvml()
    if nvml is None or any(argument is None for argument in arguments):
        return None
    try:
        return getattr(nvml, name)(*arguments)
    except (nvml.NVMLError, AttributeError):  # an older pynvml lacks some functions
        return None


def _text(value: str | bytes) -> str:
    """Older releases of pynvml answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value
