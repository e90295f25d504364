"""Resident memory, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def measured_memory(*arguments: object) -> dict[str, int]:
    """What `tests.support.children.memory_child` prints: bytes by name."""
    command = [sys.executable, "-m", "tests.support.children.memory_child", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told: dict[str, int] = json.loads(done.stdout)
    return told
