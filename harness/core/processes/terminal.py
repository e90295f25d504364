"""The terminal that a command runs in: its streams, and what happens when it goes."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from types import FrameType

_asked: set[int] = set()
"""SIGTERM, once it has interrupted."""


def open_streams() -> None:
    """What is closed goes nowhere: else the next file that is opened would get its number. What a
    locale cannot write is replaced."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdout = sys.stdout or io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    sys.stderr = sys.stderr or io.TextIOWrapper(io.FileIO(2, "w", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def stop_with_terminal() -> None:
    """A terminal that is closed and a request to end (SIGTERM) interrupt as Ctrl-C does, so that
    everything is left in order, but for who said otherwise (nohup). Programs that are started from
    here have the system's way with both."""
    _asked.clear()
    for number, handler in (
        (signal.SIGHUP, signal.default_int_handler),
        (signal.SIGTERM, _asked_to),
    ):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, handler)


def was_asked_to_end() -> bool:
    """Whether SIGTERM has interrupted this process."""
    return bool(_asked)


def _asked_to(number: int, frame: FrameType | None) -> None:
    _asked.add(number)
    signal.default_int_handler(number, frame)


def drop_output() -> None:
    """What is still to be written goes nowhere, so that the interpreter's end does not complain."""
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
