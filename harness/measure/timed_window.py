"""What surrounds the timed part of a trial: no garbage collection, an alarm at the time limit."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
from collections.abc import Iterator
from types import FrameType

ALARM_GRACE_S = 1.0
"""A backend call still running this long past the time limit is interrupted by a signal."""

RARELY = 20_000, 20, 10
"""Of the collector's thresholds: still often enough for tensors in cycles."""


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
