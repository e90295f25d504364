"""Files that a user names: opened only when they are plain ones, and read only up to a bound.

A named pipe never ends and neither does a device such as /dev/zero: reading one would hang, or fill
the memory. Standard library imports only, beside `harness.core`.
"""

from __future__ import annotations

import stat
from io import BufferedReader
from pathlib import Path

from harness.core import UserError

MIB = 2**20
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def user_path(text: str, where: str) -> Path:
    """The path that a user wrote, ``~`` expanded; it need not exist. Raises `UserError`, which
    begins with `where`, for what can be no path or may not be looked at."""
    try:
        path = Path(text).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{where} '{text[:60]}' is no usable path: {reason}") from None
    return path


def open_plain(path: Path) -> BufferedReader:
    """Open a plain file for reading bytes. Raises `UserError` for a folder, a pipe, a device or a
    socket, and `OSError` for what is missing or may not be read."""
    check_plain(path)
    return path.open("rb")


def check_plain(path: Path) -> None:
    """Raise `UserError` for a folder, a pipe, a device or a socket, also behind a link, and
    `OSError` for what is missing."""
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise UserError(f"{path}: expected a plain file, found {KINDS.get(kind, 'something else')}")


def read_text(path: Path, most_bytes: int) -> str:
    """The UTF-8 text of a plain file of up to `most_bytes`. Raises `UserError` for another kind of
    file and a larger one, `OSError`, and `UnicodeDecodeError`."""
    with open_plain(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise UserError(f"{path}: larger than {size(most_bytes)}, more than is read of such a file")
    return content.decode()


def size(count: int) -> str:
    """A number of bytes for people: ``2 MiB``, ``700 bytes``."""
    return f"{count / MIB:,.4g} MiB" if count >= MIB // 2 else f"{count:,} bytes"
