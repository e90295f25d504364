"""A user's cache that a test has for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.files import cache_folder


def own_cache(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Empty, but for the compiled kernels, which take ten seconds."""
    users = cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    cache_folder().mkdir(mode=0o700, parents=True)
    for library in users.glob("decodebench-native-*.so"):
        (cache_folder() / library.name).symlink_to(library)
