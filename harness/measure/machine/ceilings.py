"""The measured ceilings of this machine, kept between runs: `decodebench doctor --bandwidth`."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.ceilings import Ceilings, ceilings_from_json
from harness.core.files import cache_folder, write_atomic
from harness.core.nouns import canonical_json

DECIDE = ("cpu", "cores", "memory_gib", "gpus", "gpu_driver", "affinity", "cpu_quota")
"""What of `environment` has to be equal for ceilings to hold: no software, no variables."""


def stored(environment: Mapping[str, Any]) -> Ceilings | None:
    """The ceilings that were measured on the machine described; None: never, or lost."""
    with contextlib.suppress(OSError, ValueError):
        return ceilings_from_json(json.loads(_path(environment).read_text(encoding="utf-8")))
    return None


def store(environment: Mapping[str, Any], found: Ceilings) -> Path:
    """Keep them for the machine described; where. Raises `OSError`."""
    path = _path(environment)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(found.to_json(), indent=1).encode())
    return path


def _path(environment: Mapping[str, Any]) -> Path:
    machine = canonical_json({name: environment.get(name) for name in DECIDE})
    name = f"ceilings-{hashlib.sha256(machine.encode()).hexdigest()[:12]}.json"
    return cache_folder() / name
