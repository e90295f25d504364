"""Derived numbers kept in DIR/cache, so that showing a run twice costs its computing once.

An entry's name is a digest of all it was computed from: the stored trials, the experiment and the
source of this package and of `harness.core`, all of ours that it imports. A stale entry is
therefore never found, a damaged one is computed again, and the folder may be deleted at any time. A
folder that cannot be written to is no error.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.core import files

CODE = (Path(__file__).parents[1], Path(files.__file__).parent)
"""Read as bytes, comments and all: to parse them would slow down each `show`, in order to save one
computation after an edit."""


def digest(parts: Iterable[str]) -> str:
    """Name of the entry that is computed from `parts` by the present code."""
    state = hashlib.blake2b(_code(), digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part.encode())
    return state.hexdigest()


def load(folder: Path, kind: str, name: str) -> Any | None:
    """The entry, or None when it is not there or not whole."""
    try:
        text = (folder / f"{kind}-{name}.json").read_bytes()
        check, _, content = text.partition(b"\n")
        if check.decode() != hashlib.blake2b(content, digest_size=16).hexdigest():
            return None
        return json.loads(content)
    except (OSError, ValueError):
        return None


def save(folder: Path, kind: str, name: str, value: Any) -> None:
    """Store an entry and drop the older ones of its kind."""
    content = json.dumps(value).encode()
    check = hashlib.blake2b(content, digest_size=16).hexdigest().encode()
    target = folder / f"{kind}-{name}.json"
    try:
        folder.mkdir(exist_ok=True)
        files.remove_stale(folder)
        files.write_atomic(target, check + b"\n" + content)
        for old in folder.glob(f"{kind}-*.json"):
            if old != target:
                old.unlink(missing_ok=True)
    except OSError:
        return


@functools.cache
def _code() -> bytes:
    state = hashlib.blake2b(digest_size=16)
    for folder in CODE:
        for path in sorted(folder.rglob("*.py")):
            state.update(path.read_bytes())
    return state.digest()
