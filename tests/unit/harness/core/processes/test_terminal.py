"""Streams that are closed, requests to end, and paths that a user types again."""

from __future__ import annotations

import os
import shlex
import signal
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
ENDED = """
import os, subprocess, sys, time
from harness.core.processes.terminal import stop_with_terminal, was_asked_to_end
stop_with_terminal()
print(was_asked_to_end())
kill = "import os; os.kill(os.getpid(), 15)"
print(subprocess.run([sys.executable, "-c", kill]).returncode)
try:
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(60)
except KeyboardInterrupt:
    print(was_asked_to_end())
"""
COMMAND = """
import os, sys, time
import typer
from harness.cli import main
number = int(sys.argv.pop())
main.app = typer.Typer()
@main.app.command()
def waits():
    try:
        os.kill(os.getpid(), number)
        time.sleep(60)
    finally:
        print("in order")
main.main()
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


def heed() -> None:
    """A test run that no terminal ends (nohup) ignores SIGHUP, and children inherit that."""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def program(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        preexec_fn=heed,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("number", "asked"), [(signal.SIGTERM, True), (signal.SIGHUP, False), (signal.SIGINT, False)]
)
def test_a_request_to_end_interrupts_here_and_ends_what_is_started_from_here(
    number: signal.Signals, asked: bool
) -> None:
    done = program(ENDED, number.value)
    assert done.stdout.split() == ["False", str(-signal.SIGTERM), str(asked)]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 130), (signal.SIGINT, 130)]
)
def test_a_command_that_is_asked_to_end_leaves_all_in_order(
    number: signal.Signals, code: int
) -> None:
    done = program(COMMAND, number.value)
    assert (done.returncode, done.stdout) == (code, "in order\n")
    assert done.stderr == "decodebench: interrupted; what was finished is stored\n"
