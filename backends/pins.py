"""What pins a trial's numbers from the backend's side: its code, and the files of its options."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from backends import BACKENDS, asking, load_class, settings
from harness.core.closure import DIGITS, PACKAGES, Sources, digest
from harness.core.errors import UserError
from harness.core.files import open_plain
from harness.core.nouns import Model, canonical_json

MAKERS = ("backends.training", "backends.checkpoints.shapes")
"""What they make is pinned as a file, or as a model by its checksum; how it was made is not."""


def code(name: str, sources: Sources, *more: str) -> dict[str, str]:
    """The source files that backend `name` runs, by path, with 16 hex digits each (see
    `harness.core.closure`), and those of the modules `more`. Of a backend in a package that is not
    ours, the package's version. Raises `UserError` for a file that is no Python."""
    module = BACKENDS[name].partition(":")[0]
    top = module.split(".")[0]
    found = {f"backend {name}": digest(BACKENDS[name].encode())}
    if top not in PACKAGES:
        return found | {f"package {top}": digest(_version(top).encode())}
    return found | sources.closure([module, *more], without=MAKERS)


def code_digest(name: str, *more: str) -> str:
    """16 hex digits of `code`, for what is no trial: the answers that a calibration keeps."""
    return digest(canonical_json(code(name, Sources(), *more)).encode())


def paths(name: str, model: Model, options: Mapping[str, Any]) -> list[Path]:
    """The files that options of backend `name` name. Empty where there are none, or where the
    backend refuses its options, which opening it will say."""
    from backends.checkpoints import models

    try:
        with asking(name, "files"):
            directory = models.resolve(model, weights=False)
            found = load_class(name).files(directory, settings(name, options))
            return [Path(path) for path in found]
    except UserError:
        return []


def files(name: str, model: Model, options: Mapping[str, Any]) -> dict[str, str]:
    """`paths` by folder and name, with 16 hex digits of their content each, or "missing" where one
    cannot be read."""
    found: dict[str, str] = {}
    for path in paths(name, model, options):
        try:
            with open_plain(path) as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()[:DIGITS]
        except (UserError, OSError):
            content = "missing"
        found[_label(path, found)] = content
    return found


def _label(path: Path, taken: Mapping[str, str]) -> str:
    """Short, and the same wherever the folder lies."""
    label = f"{path.parent.name}/{path.name}"
    return label if label not in taken else f"{label} ({len(taken) + 1})"


def _version(package: str) -> str:
    names = metadata.packages_distributions().get(package, [])
    return " ".join(f"{name} {metadata.version(name)}" for name in sorted(set(names)))
