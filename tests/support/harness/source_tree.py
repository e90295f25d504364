"""A copy of our own sources, to be edited."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.core.closure import COMPILED, PACKAGES, ROOT


def copy_sources(target: Path) -> Path:
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("[!.]*")):
        if path.suffix in (".py", *COMPILED):
            place = target / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    return target
