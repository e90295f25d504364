"""Bad input, what cannot be reached, and the nearest name to one that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input from the user: one line that says what, where and what was expected."""


class UnavailableError(UserError):
    """What the user named does not answer now, though it may later. `reached`: somebody is there,
    but busy or starting; else it may be the wrong address."""

    def __init__(self, line: str, *, reached: bool) -> None:
        super().__init__(line)
        self.reached = reached


def nearest(name: str, known: Iterable[str]) -> str:
    """The tail of an error line: the nearest valid name, or all of them when none is near."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    return "expected one of: " + ", ".join(options)
