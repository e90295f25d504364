"""What surrounds the timed part of a trial: no garbage collection, an alarm at the time limit, a
look at whether this process stood still."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Self

ALARM_GRACE_S = 1.0
"""A backend call still running this long past the time limit is interrupted by a signal."""

RARELY = 20_000, 20, 10
"""Of the collector's thresholds: still often enough for tensors in cycles."""


LOOK_S, STILL_S = 0.1, 0.5
"""Between looks at whether this process runs, and how much longer one takes where it did not."""


class TimeUp(BaseException):
    """Raised by the alarm. No Exception, so that a backend's `except Exception` lets it through."""


@contextlib.contextmanager
def collected_rarely() -> Iterator[None]:
    """While libraries are imported and a model is loaded: thousands of modules leave no garbage,
    and looking for it took a sixth of vLLM's start."""
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def keep_from_collection() -> None:
    """Take what lives now, a loaded engine and the libraries beneath it, out of every later
    collection: with torch and a model loaded, looking through it takes 0.2 s, twice a trial."""
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Keep the collector's pauses (tens of ms with a model loaded) out of the timed window."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def alarm(limit_s: float | None) -> Iterator[None]:
    """Interrupt a backend call that hangs past the limit (possible in the main thread only)."""
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def time_up(_signal: int, _frame: FrameType | None) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, time_up)
    signal.setitimer(signal.ITIMER_REAL, limit_s + ALARM_GRACE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


class StandstillWatch:
    """For how long nothing of this process ran while it should have: it was stopped or frozen, or
    its machine was. Clocks go on meanwhile, so that it looks like an engine's latency.

    A thread sleeps for `LOOK_S` at a time. What keeps it from waking takes the driving thread's
    processor time where it is a call there that lets no other thread run, and none where nothing
    ran.
    """

    def __init__(self) -> None:
        self.still_s = 0.0
        self._used_s = _used_by_this_thread()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="standstill watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        over = False
        last_s, used_s = time.monotonic(), self._used_s()
        while not over:
            over = self._over.wait(LOOK_S)
            before_s, before_used_s = last_s, used_s
            last_s, used_s = time.monotonic(), self._used_s()
            taken_s = last_s - before_s
            lost_s = taken_s - LOOK_S - (used_s - before_used_s)
            if lost_s > STILL_S:
                self.still_s += lost_s


def _used_by_this_thread() -> Callable[[], float]:
    """Seconds of processor time that the calling thread has used, asked from any thread; of the
    whole process where the system does not tell threads apart."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    if clock_of is None:
        return time.process_time
    clock = clock_of(threading.get_ident())
    try:
        time.clock_gettime(clock)
    except OSError:  # a sandbox may not let one thread ask for another's
        return time.process_time
    return lambda: time.clock_gettime(clock)
