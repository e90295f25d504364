"""A stage's process that answers with as many bytes as it was sent, or as it is asked for."""

from __future__ import annotations

import contextlib
import os
import signal
from multiprocessing.connection import Connection

HANG = "hang"


def main(descriptor: int) -> None:
    """As `backends.tetris.piped_stages` wants it; told to hang, it stops itself."""
    with contextlib.suppress(EOFError, OSError), Connection(descriptor) as channel:
        channel.send(channel.recv())
        while True:
            job = channel.recv()
            if job == HANG:
                os.kill(os.getpid(), signal.SIGSTOP)
            channel.send(bytes(job) if isinstance(job, int) else job)
