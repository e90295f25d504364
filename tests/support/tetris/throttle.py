"""A process that is made slow."""

from __future__ import annotations

import os
import signal
import threading
import time

RUNS_NS = 1_000_000
"""Nanoseconds of a processor that it has in turn."""
LOOK_S, LONGEST_LOOKS = 0.001, 100
STOPPED_TIMES = 5
"""As long as it took for that, which is longer where others want the processor too: by fixed times
it would starve there, or be no slower than others are."""


class Throttle:
    """Stops a process for most of the time, from `begin` on."""

    def __init__(self, pid: int) -> None:
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def begin(self) -> None:
        if not self._thread.is_alive():
            self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            begin_s, before_ns = time.monotonic(), self._ran_ns()
            for _ in range(LONGEST_LOOKS):
                time.sleep(LOOK_S)
                if self._ran_ns() - before_ns > RUNS_NS:
                    break
            os.kill(self._pid, signal.SIGSTOP)
            time.sleep(STOPPED_TIMES * (time.monotonic() - begin_s))
            os.kill(self._pid, signal.SIGCONT)

    def _ran_ns(self) -> int:
        """Of a processor, by the clock that clock_getcpuclockid(3) names."""
        return time.clock_gettime_ns((~self._pid << 3) | 2)
