"""Streams that are closed, and paths that a user types again."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.errors import as_argument

WRITES = """
import os, sys
from harness.core.processes.terminal import open_streams
open_streams()
kept = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("to nobody")
print("to nobody", file=sys.stderr)
sys.stdout.flush()
os.system("echo to nobody; echo to nobody >&2")
sys.exit(0 if kept > 2 else 3)
"""


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_what_is_written_to_a_closed_stream_gets_into_no_file(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    done = subprocess.run(
        [sys.executable, "-c", WRITES, "kept"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        preexec_fn=close,
        text=True,
    )
    assert done.returncode == 0
    assert (tmp_path / "kept").read_bytes() == b""
    assert done.stdout == "to nobody\nto nobody\n" * (1 not in closed)
    assert done.stderr == "to nobody\nto nobody\n" * (2 not in closed)


@pytest.mark.parametrize("name", ["a", "a b", "-lead", "it's", "x/-y", "~"])
def test_a_path_is_one_argument_and_no_option(name: str) -> None:
    (word,) = shlex.split(as_argument(Path(name)))
    assert Path(word) == Path(name)
    assert not word.startswith("-")
