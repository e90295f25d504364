"""The model of this machine's processor."""

from __future__ import annotations

import contextlib
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
"""Of its flags."""


def cpu_model() -> str:
    """Its name; without one the numbers by which ARM's are told apart, or its architecture."""
    told: list[tuple[str, str]] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            told.append((name.strip(), value.strip()))
    for name, value in told:
        if name in ("model name", "Model"):
            return value
    return _arm_model(told) or _apple_model() or platform.processor() or platform.machine()


def multiplies_bfloat16() -> bool:
    """Whether it has products of bfloat16. Elsewhere they take ten times as long as float32's."""
    with contextlib.suppress(OSError):
        return bool(BFLOAT16 & set(Path("/proc/cpuinfo").read_text().split()))
    return False


def _arm_model(told: Iterable[tuple[str, str]]) -> str:
    """By the numbers that 64-bit ARM has in the place of a name, each kind of core once; empty
    where there are none."""
    fields = {"CPU implementer": "implementer", "CPU part": "part", "CPU variant": "variant"}
    kinds: list[dict[str, str]] = []
    for name, value in told:
        if name == "CPU implementer":  # the first of a core's
            kinds.append({})
        if name in fields and kinds:
            kinds[-1][fields[name]] = value
    words = {
        " ".join(f"{name} {kind[name]}" for name in fields.values() if name in kind)
        for kind in kinds
    }
    return f"{platform.machine()} {', '.join(sorted(words))}" if words else ""


def _apple_model() -> str:
    if platform.system() != "Darwin":
        return ""
    return said("sysctl", "-n", "machdep.cpu.brand_string") or ""


def said(*command: str, timeout_s: float = 5.0) -> str | None:
    """What a program prints, without the space around it; None where it fails, or is not there."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=True
        )
        return done.stdout.strip()
    return None
