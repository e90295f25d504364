"""Bad input, what cannot be reached, and the nearest name to one that is not there; which bad input
is another machine's to refuse; and how a path is told that a user types again."""

from __future__ import annotations

import contextlib
import difflib
import shlex
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path

SOME_FAILED = 4
"""Exit code: some trials failed, and what came of the others is there."""
_elsewhere = ContextVar("elsewhere", default=False)
_OF_MEMORY = ("MemoryError", "OutOfMemoryError")
_NO_MEMORY = ("can't allocate memory", "out of memory", "cannot allocate memory")


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


def as_argument(path: Path) -> str:
    """As it stands in a shell's command: quoted, and no option where its name begins with "-"."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def of_memory(error: BaseException) -> bool:
    """Whether an error, also one told on from another process, is that memory was too little."""
    text = " ".join(str(error).lower().split())
    return type(error).__name__ in _OF_MEMORY or any(phrase in text for phrase in _NO_MEMORY)


@contextlib.contextmanager
def elsewhere(is_so: bool) -> Iterator[None]:
    """Around checks of what other machines are to run, where `is_so`."""
    token = _elsewhere.set(is_so)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def runs_elsewhere() -> bool:
    """Whether what is checked is to run on other machines. What only this one lacks (a GPU, memory,
    a package) is then no bad input: they check for themselves."""
    return _elsewhere.get()
