"""The terminal that a command runs in: its streams, and what happens when it goes."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys


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
    """A terminal that is closed interrupts as Ctrl-C does, but for who said otherwise (nohup)."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def drop_output() -> None:
    """What is still to be written goes nowhere, so that the interpreter's end does not complain."""
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
