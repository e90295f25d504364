"""What other tools' files say, read with care: a value that is not what it should be is named."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.files import open_plain, size

MAX_BYTES = 2**30
LONGEST_REASON = 300


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of up to `MAX_BYTES`. Raises `UserError`."""
    with _opened(path) as file:
        return _object(file.read(MAX_BYTES + 1), str(path))


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects in a file, one a line, each of up to `MAX_BYTES`. Raises `UserError`."""
    with _opened(path) as file:
        lines = iter(lambda: file.readline(MAX_BYTES + 1), b"")
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _object(line, f"{path}, line {number}")


def read_objects(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects in a file: one in all, or one on each line. Raises `UserError`."""
    lines = read_lines(path)
    try:
        first = next(lines, None)
    except UserError:
        first = None
    if first is None:  # an object over several lines, or what is none
        yield read_object(path)
    else:
        yield first
        yield from lines


def part(of: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The object that stands there under these names, one in the other; an empty one where there
    is none."""
    found: Any = of
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def seconds(value: Any, name: str) -> float:
    """A time. Raises `ValueError` for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: {value!r} is no number")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}: {value} is no time")
    return float(value)


def tokens(value: Any, name: str) -> int:
    """A number of tokens. Raises `ValueError` for what is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or value < 0:
        raise ValueError(f"{name}: {value!r} is no number of tokens")
    return value


def places(value: Any, name: str) -> int | None:
    """How many requests may be in flight; None where nothing limits them. Raises `ValueError` for
    what is no such number."""
    if not value:
        return None
    if type(value) is not int or value < 0:
        raise ValueError(f"{name}: is {value!r}; expected a whole number of at least 1")
    return value


def one_line(text: Any, otherwise: str) -> str:
    """An error's text as one short line."""
    return (" ".join(str(text or "").split()) or otherwise)[:LONGEST_REASON]


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    try:
        with open_plain(path) as file:
            yield file
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def _object(content: bytes, where: str) -> dict[str, Any]:
    if len(content) > MAX_BYTES:
        raise UserError(f"{where}: larger than {size(MAX_BYTES)}, more than is read at once")
    try:
        told = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: no JSON: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(told, dict):
        raise UserError(f"{where}: expected an object, found a {type(told).__name__}")
    return told
