"""What other tools' files say, read with care: a value that is not what it should be is named."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.files import check_plain

MAX_BYTES = 2**30
LONGEST_REASON = 300


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `UserError`."""
    told = _parsed(_content(path), str(path))
    if not isinstance(told, dict):
        raise UserError(f"{path}: expected an object, found a {type(told).__name__}")
    return told


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects in a file, one a line. Raises `UserError`."""
    for number, line in enumerate(_content(path).splitlines(), start=1):
        if not line.strip():
            continue
        told = _parsed(line, f"{path}, line {number}")
        if not isinstance(told, dict):
            raise UserError(f"{path}, line {number}: expected an object")
        yield told


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


def _content(path: Path) -> bytes:
    try:
        check_plain(path)
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def _parsed(content: bytes, where: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: no JSON: {' '.join(str(error).split())[:200]}") from None
