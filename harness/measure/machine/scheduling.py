"""Ask Linux to wake the load loop on time.

A thread that naps is woken late twice over: timers are rounded up by the thread's slack (50 us),
and on a busy machine the thread then waits until the running one has used up its slice (3 ms). Both
can be changed without privileges, for one thread: `prctl(PR_SET_TIMERSLACK)`, and since Linux 6.12
a slice of its own (`sched_setattr` with `sched_runtime` for a normal thread). Where the kernel
knows neither, nothing changes: lateness is measured and judged in any case (`client_lag_ns`).
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
from collections.abc import Iterator

SLACK_NS = 1_000
SLICE_NS = 100_000
"""The kernel's smallest: among busy processes it kept the loop's lag several times smaller than
slices of 0.5 ms and more did."""

_PR_SET_TIMERSLACK, _PR_GET_TIMERSLACK = 29, 30
_RESET_ON_FORK = 1
_SYSCALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""sched_setattr and sched_getattr."""


class _SchedAttr(ctypes.Structure):
    """`struct sched_attr` of sched_setattr(2), version 0."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    ]


@contextlib.contextmanager
def prompt_wakeups() -> Iterator[None]:
    """For the calling thread, until the context ends; threads it starts get the default slice."""
    calls = _SYSCALLS.get(platform.machine())
    if platform.system() != "Linux" or calls is None:
        yield
        return
    libc = ctypes.CDLL(None)
    slack = libc.prctl(_PR_GET_TIMERSLACK, 0, 0, 0, 0)
    before = _SchedAttr()
    known = libc.syscall(calls[1], 0, ctypes.byref(before), ctypes.sizeof(before), 0) == 0
    if known:
        prompt = _SchedAttr.from_buffer_copy(before)
        prompt.runtime, prompt.flags = SLICE_NS, before.flags | _RESET_ON_FORK
        libc.syscall(calls[0], 0, ctypes.byref(prompt), 0)
    libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(SLACK_NS), 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(slack), 0, 0, 0)
        if known:
            libc.syscall(calls[0], 0, ctypes.byref(before), 0)
