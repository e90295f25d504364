"""The command line: in this process, and in one of its own as a user's script calls it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from harness.cli import main

ROOT = Path(__file__).parents[3]
MAIN = ("-m", "harness.cli.main")


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit code of ``decodebench`` with these arguments, in this process."""
    monkeypatch.setattr("sys.argv", ["decodebench", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return int(ended.value.code or 0)


def here(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """As `decodebench`, in this process: for what starts no engine, in a second or two less. Other
    tests have changed what this process runs with, so that trials of a process are none of its."""
    told = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    with (
        mock.patch.dict(os.environ),  # a library that is loaded may set variables for good
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(told[0]),
        contextlib.redirect_stderr(told[1]),
    ):
        patch.chdir(cwd)
        patch.delenv("COLUMNS", raising=False)
        code = call(patch, *arguments)
    out, err = (one.buffer.getvalue().decode() for one in told)
    return subprocess.CompletedProcess([*map(str, arguments)], code, out, err)


def refused(*arguments: object, cwd: Path = ROOT) -> str:
    """What bad input is told on standard error, in this process."""
    done = here(*arguments, cwd=cwd)
    assert done.returncode == 2, done.stdout
    return done.stderr


def in_full(*arguments: object, start: Sequence[str] = MAIN) -> list[str]:
    """The command of a process; `start` is what the interpreter is asked to run."""
    return [sys.executable, *start, *map(str, arguments)]


def environment(changes: Mapping[str, str] = {}) -> dict[str, str]:
    """This process's, with this version of the code. A pipe has no width, unless `changes` names
    one."""
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return {**inherited, "PYTHONPATH": str(ROOT), **changes}


def decodebench(
    *arguments: object,
    cwd: Path = ROOT,
    start: Sequence[str] = MAIN,
    stdout: int = subprocess.PIPE,
    env: Mapping[str, str] = {},
    ahead: bool = False,
) -> subprocess.CompletedProcess[str]:
    """A process that has ended. `env` is what its environment has otherwise. `ahead`: it goes
    before other processes where the user may ask for that, since other tests run beside it."""
    before = ("nice", "-n", "-15") if ahead and os.geteuid() == 0 else ()
    return subprocess.run(
        [*before, *in_full(*arguments, start=start)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment(env),
        timeout=3000,
    )


def printed(*arguments: object, cwd: Path = ROOT, env: Mapping[str, str] = {}) -> str:
    """What a process that ended well wrote."""
    done = decodebench(*arguments, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(run: object, cwd: Path = ROOT) -> list[dict[str, Any]]:
    """The trials of a run folder, as ``show`` gives them."""
    done = here("show", run, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
