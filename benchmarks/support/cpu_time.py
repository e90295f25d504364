"""The CPU time of a command with all of its processes, those included that their parents left."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUBREAPER = 36
"""`prctl(PR_SET_CHILD_SUBREAPER)`: processes whose parents have ended become ours."""
METER = "from benchmarks.support.cpu_time import meter; meter()"


def run_metered(
    command: Sequence[str], environment: Mapping[str, str], log: Path, limit_s: float
) -> float:
    """Run the command; what it prints goes to `log`. Returns its CPU time in seconds.

    Raises `RuntimeError` with the end of the log when it fails or takes longer than `limit_s`.
    """
    figures = log.with_suffix(".cpu.json")
    figures.unlink(missing_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", METER, str(figures), *command],
            env={"PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            start_new_session=True,
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if status:
        raise RuntimeError(f"{command[0]} failed ({status}):\n{log.read_text()[-2000:]}")
    return float(json.loads(figures.read_text()))


def meter() -> None:
    """In a process of its own: run the command of the command line, wait for everything that it
    started, write the CPU time of all and exit as the command did."""
    figures, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    process = subprocess.Popen(command)
    status = process.wait()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(figures).write_text(json.dumps(used.ru_utime + used.ru_stime))
    sys.exit(1 if status else 0)
