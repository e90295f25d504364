"""Which of the visible GPUs an engine is on, and what it takes of their memory.

The driver lists the processes that use a device, but in a container by the host's numbers or not at
all. There the engine is on the devices whose memory grew while it was loaded or worked: engines of
one sweep do so one at a time.
"""

from __future__ import annotations

from collections.abc import Set

import psutil

from harness.measure.machine import gpu

CONTEXT_BYTES = 64 * 2**20
"""By less no device's memory grows that an engine is put on: a CUDA context alone takes more."""


class Placement:
    """Of one engine. Make it before the engine is loaded."""

    def __init__(self) -> None:
        self._grown: dict[int, int] = {}
        """Bytes by place in `gpu.devices`."""
        self.wake()

    def wake(self) -> None:
        """The engine is at work from now on: what others have taken until now is theirs."""
        self._before = gpu.memory_used()

    def settle(self) -> None:
        """Count as the engine's by what the memory in use has grown since `wake`. It is held for
        good: what is in use may shrink when others go, and engines give nothing back."""
        now = gpu.memory_used()
        for place, (before, used) in enumerate(zip(self._before, now, strict=True)):
            if before is not None and used is not None and used > before:
                self._grown[place] = self._grown.get(place, 0) + used - before
        self._before = now

    def gpus(self, pids: Set[int]) -> tuple[int, ...]:
        """Places of the engine's devices, which has these processes; none where it uses none. Where
        neither processes nor memory tell: the first one, which CUDA takes unless told otherwise."""
        if listed := gpu.holding(pids):
            return listed
        if self._before and all(used is None for used in self._before):
            return (0,) if _may_hide(0) else ()
        grown = (place for place, size in self._grown.items() if size >= CONTEXT_BYTES)
        return tuple(sorted(place for place in grown if _may_hide(place)))

    def memory(self, pids: Set[int]) -> int | None:
        """Bytes of device memory that the engine with these processes takes; None where neither the
        driver says so nor its growth."""
        told = gpu.memory_of(pids)
        if told is not None:
            return told
        return sum(self._grown.get(place, 0) for place in self.gpus(pids)) or None


def _may_hide(place: int) -> bool:
    """Whether processes of ours may use the device that the driver does not list by our numbers: it
    lists none, or some that do not exist here."""
    listed = gpu.holders(place)
    return not listed or not all(map(psutil.pid_exists, listed))
