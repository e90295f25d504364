"""A stage's process that answers with as many bytes as it was sent, or as it is asked for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from backends.tetris.workers.piped_stages import serve
from harness.core.errors import UserError

HANG, BREAK, FILL, REFUSE = "hang", "break", "fill", "refuse"


def main(descriptor: int) -> None:
    """As `PipedStages` wants it; told to hang, it stops itself. Setups are answered alike."""

    def opened(setup: Any) -> Callable[[Any], Any]:
        answered(setup)
        return answered

    serve(Connection(descriptor), opened)


def answered(job: Any) -> Any:
    """What is sent back."""
    if job == HANG:
        os.kill(os.getpid(), signal.SIGSTOP)
    if job == BREAK:
        raise ZeroDivisionError("played")
    if job == FILL:
        raise MemoryError("played")
    if job == REFUSE:
        raise UserError("played")
    return bytes(job) if isinstance(job, int) else job
