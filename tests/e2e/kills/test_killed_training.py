"""A training process is killed, as the kernel does it for want of memory: one line, and the same
command goes on."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil
import pytest

from backends.training.rows.tokenizer import train_tokenizer
from backends.training.small_models.run import STATE
from tests.support.harness.command import decodebench, environment, in_full

PATIENCE_S = 120.0
ON_CPU = {"CUDA_VISIBLE_DEVICES": ""}
"""A GPU computes all gradients in one process."""
pytestmark = pytest.mark.slow


def both_shards(command: int) -> list[psutil.Process]:
    """The command's processes that compute gradients, once all are there."""
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        children = psutil.Process(command).children()
        found = [one for one in children if "multiprocessing.spawn" in " ".join(one.cmdline())]
        if len(found) == 2:
            return found
        time.sleep(0.05)
    raise AssertionError("no training processes")


def test_a_killed_shard_is_one_line_and_the_command_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "model"
    train_tokenizer(out, rows_per_workload=60)
    asked = ("train", "demo", "--out", out)
    with subprocess.Popen(
        in_full(*asked, "--steps", "50", "--threads", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(ON_CPU),
    ) as command:
        both_shards(command.pid)[0].kill()
        _, errors = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 2, errors
    (line,) = errors.splitlines()
    assert line.startswith("decodebench: a training process was killed or failed, perhaps for lack")
    assert (out / STATE).is_file()
    done = decodebench(*asked, "--steps", "1", "--threads", "1", cwd=tmp_path, env=ON_CPU)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["finished"]
