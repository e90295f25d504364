"""Scripts of the tests that run in a process of their own: vLLM changes the one that it runs in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHILDREN = Path(__file__).with_name("children")


def run_child(script: Path, *arguments: object, timeout: float = 3000, **environment: str) -> str:
    """The last line that the script prints. Fails with the end of its errors when it does."""
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return "".join(done.stdout.splitlines()[-1:])
