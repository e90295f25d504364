"""A process that is made slow."""

from __future__ import annotations

import os
import signal
import threading
import time

STOPPED_S = 0.015


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
            os.kill(self._pid, signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(self._pid, signal.SIGCONT)
            time.sleep(STOPPED_S / 3)
