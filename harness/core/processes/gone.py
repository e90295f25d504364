"""Talking to a process that may be killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.core.errors import UserError

GONE = (EOFError, ConnectionError)
"""What reading or writing raises where the process at the other end is gone."""


@contextmanager
def told_if_gone(told: str) -> Iterator[None]:
    """Around what needs the process to be there. Raises `UserError` with `told` where it is not."""
    try:
        yield
    except GONE:
        raise UserError(told) from None
