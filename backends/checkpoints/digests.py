"""Digests of large files, remembered in the user's cache folder."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from backends.checkpoints import weight_files
from harness.core.files import cache_folder, sha256, write_atomic


class FileDigests:
    """sha256 of files by path, size and time of change; losing what is remembered is harmless."""

    def __init__(self) -> None:
        self._path = cache_folder() / "checked.json"
        self._known: dict[str, str] = {}
        self._new: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._known = dict(json.loads(self._path.read_text()).items())

    def digest(self, path: Path) -> str:
        """The file's digest, read at most once. Raises `UserError` for weights that hold NaN or
        infinity, and `OSError`."""
        key = _key(path)
        if not isinstance(self._known.get(key), str):
            self._known[key] = self._new[key] = _digest(path.resolve())
        return self._known[key]

    def remember(self, path: Path, digest: str) -> None:
        """Take the digest from who has just written the file. Raises `OSError`."""
        key = _key(path)
        self._known[key] = self._new[key] = digest

    def save(self) -> None:
        """Keep what is new. A folder that cannot be written to is no error."""
        if not self._new:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(self._known).encode())


def _key(path: Path) -> str:
    real = path.resolve()
    stat = real.stat()
    return f"{real} {stat.st_size} {stat.st_mtime_ns}"


def _digest(path: Path) -> str:
    return weight_files.digest(path) if path.suffix == ".safetensors" else sha256(path)
