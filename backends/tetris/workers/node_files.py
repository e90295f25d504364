"""What the machines of a cluster have to have in common: this version, and the same files under the
same paths."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from backends.checkpoints import models
from backends.checkpoints.digests import FileDigests
from harness.core.closure import COMPILED, PACKAGES, ROOT


@functools.cache
def sources_digest() -> str:
    """sha256 of this project's sources, compiled ones too."""
    state = hashlib.sha256()
    found = (path for name in PACKAGES for path in (ROOT / name).rglob("*"))
    for path in sorted(path for path in found if path.suffix in (".py", *COMPILED)):
        state.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return state.hexdigest()


def marks_of(paths: Iterable[Path]) -> dict[str, str]:
    """By absolute path the sha256 of a file, or of what decides a checkpoint's answers. Each file
    is read once (`FileDigests`)."""
    return {str(path.resolve()): _mark(path) for path in paths}


def refusal(digest: str, marks: Mapping[str, str], node: str) -> str | None:
    """What a node lacks, or has otherwise, in a line.

    Args:
        digest: `sources_digest` where the run was started.
        marks: `marks_of` there.
        node: its address.
    """
    if sources_digest() != digest:
        return f"node {node} has another version of decodebench; expected this one on every node"
    for name, mark in marks.items():
        if not Path(name).exists():
            return f"node {node} has no '{name}'; expected it under the same path on every node"
        if _mark(Path(name)) != mark:
            return f"node {node} has another '{name}'; expected the same one on every node"
    return None


def _mark(path: Path) -> str:
    if path.is_dir():
        return models.checksum(path)
    cache = FileDigests()
    found = cache.digest(path)
    cache.save()
    return found
