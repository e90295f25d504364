"""Finding the processes of sandboxed programs."""

from __future__ import annotations

import time
from pathlib import Path


def processes_in(folder: Path) -> list[int]:
    """The processes whose working directory is, or was, in this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str((entry / "cwd").readlink()).startswith(str(folder)):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def is_locked_in(process: int) -> bool:
    return "\nSeccomp:\t2\n" in Path(f"/proc/{process}/status").read_text()


def wait_until(condition: object, limit_s: float = 20.0) -> bool:
    assert callable(condition)
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
