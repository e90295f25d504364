"""Faults in a real run: one clear line, the right exit code, nothing finished lost."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.support.cli_errors import own_errors
from tests.support.fake_openai import FakeReply, FakeServer, Play, good
from tests.support.harness.command import rows_of
from tests.support.tiny_llama import write_tiny_llama

SECONDS = 1500
REPEATS = 8
"""Of a run that is interrupted: more than pass while this process stands still."""
pytestmark = pytest.mark.slow
SCRIPTED = {"name": "scripted", "ttft_s": 0.01, "itl_s": 0.001}
EXPERIMENT: dict[str, Any] = {
    "name": "faults",
    "backends": [SCRIPTED],
    "workloads": ["gsm8k"],
    "load": [{"kind": "closed", "concurrency": 4}],
    "requests": 8,
    "max_new_tokens": 3,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("model"))


def start(
    folder: Path, *arguments: str, prepare: Callable[[], None] | None = None, **environment: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "harness.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )


def run(folder: Path, **more: Any) -> tuple[int, str, str]:
    """The command's exit code, output and errors, in a folder with an experiment."""
    process = start(folder, *more.pop("command", ("run", "e.yaml", "--out", "run")), **more)
    output, errors = process.communicate(timeout=SECONDS)
    assert "Traceback" not in output + errors
    return process.returncode, output, own_errors(errors)


def write(folder: Path, model: Path, **changes: Any) -> Path:
    data = {**EXPERIMENT, "model": str(model), **changes}
    (folder / "e.yaml").write_text(yaml.safe_dump(data))
    return folder


def stored(folder: Path) -> dict[str, int]:
    """Time of change of every record, by its file's name."""
    return {p.name: p.stat().st_mtime_ns for p in (folder / "run/trials").glob("*.json")}


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def heed_interrupts() -> None:
    """A test run in the background of a shell ignores them, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("how", "ended"), [(signal.SIGINT, 130), (signal.SIGHUP, 130), (signal.SIGTERM, 143)]
)
def test_an_interrupted_run_is_finished_by_the_same_command(
    how: signal.Signals, ended: int, tmp_path: Path, model: Path
) -> None:
    write(tmp_path, model, backends=[{**SCRIPTED, "ttft_s": 0.2}], repeats=REPEATS)
    command = ("run", "e.yaml", "--out", "run", "--again-share", "0")  # a disturbed one stays
    process = start(tmp_path, *command, prepare=heed_interrupts)
    wait_for(lambda: (tmp_path / "run/trials").is_dir() and len(stored(tmp_path)) >= 1)
    process.send_signal(how)
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == ended
    told = own_errors(errors)
    assert (output, told) == ("", "decodebench: interrupted; what was finished is stored\n")
    kept = stored(tmp_path)
    assert 1 <= len(kept) < REPEATS
    code, output, errors = run(tmp_path, command=command)
    assert (code, errors) == (0, "")
    assert f"{len(kept)} stored, {REPEATS - len(kept)} ok" in output
    assert len(stored(tmp_path)) == REPEATS
    assert kept.items() <= stored(tmp_path).items()


def test_a_fresh_run_that_is_asked_to_end_puts_back_what_was_stored(
    tmp_path: Path, model: Path
) -> None:
    write(tmp_path, model)
    assert run(tmp_path)[0] == 0
    kept = stored(tmp_path)
    write(tmp_path, model, backends=[{**SCRIPTED, "ttft_s": 60.0}])
    process = start(tmp_path, "run", "e.yaml", "--out", "run", "--fresh")
    wait_for(lambda: all((tmp_path / "run" / at / "logs").is_dir() for at in ("", ".forgotten")))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 143, errors
    assert stored(tmp_path) == kept
    assert not (tmp_path / "run/.forgotten").exists()


def test_a_disk_that_takes_no_more_keeps_what_it_has(tmp_path: Path, model: Path) -> None:
    """Stood in for by a limit on the size of a file: the first workload's trials fit below it."""
    workloads = [{"name": "gsm8k"}, {"name": "humaneval", "max_new_tokens": 900}]
    write(tmp_path, model, workloads=workloads, backends=[{**SCRIPTED, "itl_s": 0.0}])

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, resource.RLIM_INFINITY))

    code, _, errors = run(tmp_path, prepare=limit)
    assert code == 2
    assert errors.count("\n") == 1
    assert errors.startswith("decodebench: run/trials/")
    assert "cannot store trial" in errors
    assert "File too large; the trials stored before it are safe: make room" in errors
    kept = stored(tmp_path)
    assert len(kept) == 1
    assert len(list((tmp_path / "run/trials").iterdir())) == 2, "no half-written file is left"
    code, output, _ = run(tmp_path)
    assert code == 0
    assert "1 stored, 1 ok" in output
    assert kept.items() <= stored(tmp_path).items()


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, model: Path) -> None:
    poisoned = Path(shutil.copytree(model, tmp_path / "poisoned"))
    content = bytearray((poisoned / "model.safetensors").read_bytes())
    content[-4:] = np.float32(np.nan).tobytes()
    (poisoned / "model.safetensors").write_bytes(content)
    code, _, errors = run(write(tmp_path, poisoned))
    assert code == 2
    assert errors.startswith(f"decodebench: {poisoned}/model.safetensors: tensor '")
    assert errors.endswith("holds NaN or infinity; expected finite weights\n")
    assert not (tmp_path / "run").exists()


def test_an_edited_experiment_keeps_what_is_stored(tmp_path: Path, model: Path) -> None:
    assert run(write(tmp_path, model, repeats=2))[0] == 0
    kept = stored(tmp_path)
    both = [SCRIPTED, {**SCRIPTED, "itl_s": 0.002}]
    code, output, _ = run(write(tmp_path, model, backends=both, repeats=2))
    assert code == 0
    assert "2 stored, 2 ok" in output
    assert kept.items() <= stored(tmp_path).items()
    assert len(rows_of("run", tmp_path)) == 4


Serve = Callable[[Play], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that plays this, and its probe well; returns its address."""
    servers: list[FakeServer] = []

    def start(play: Play) -> str:
        servers.append(FakeServer(play, probe=good))
        return servers[-1].url

    yield start
    for server in servers:
        server.close()


def dropped(reply: FakeReply) -> None:
    reply.tokens([11, 12])
    reply.drop()


def every_other(play: Play) -> Play:
    turns = itertools.count()  # each thread of the server has one of its own

    def alternate(reply: FakeReply) -> None:
        (good if next(turns) % 2 else play)(reply)

    return alternate


def http(url: str, **options: Any) -> dict[str, Any]:
    return {"backends": [{"name": "http", "base_url": url, **options}]}


def test_a_server_that_hangs_fails_its_trial_and_the_exit_code_says_so(
    tmp_path: Path, model: Path, serve: Serve
) -> None:
    url = serve(lambda reply: time.sleep(SECONDS))
    # the time holds for the probe, too, which is answered
    code, output, errors = run(write(tmp_path, model, requests=4, **http(url, timeout_s=4.0)))
    assert code == 4
    assert "no complete answer within 4 s" in output + errors
    (row,) = rows_of("run", tmp_path)
    assert (row["status"], row["valid"], row["output_tok_per_s"]) == ("failed", False, None)


def test_answers_that_break_off_are_counted_and_never_samples(
    tmp_path: Path, model: Path, serve: Serve
) -> None:
    code, _, _ = run(write(tmp_path, model, **http(serve(every_other(dropped)))))
    assert code == 0
    (row,) = rows_of("run", tmp_path)
    assert (row["n_requests"], row["n_completed"], row["n_errors"]) == (8, 4, 4)
    assert row["output_tokens"] == 4 * 3
    assert not row["valid"]
    assert row["invalid_reasons"][0].startswith("failures: 4 of 8 requests failed (first: ")


def test_a_home_that_takes_no_file_is_no_error_and_no_noise(tmp_path: Path, model: Path) -> None:
    home = {"HOME": "/dev/null", "XDG_CACHE_HOME": "", "MPLCONFIGDIR": ""}
    write(tmp_path, model, requests=2)
    assert run(tmp_path, **home)[::2] == (0, "")
    for command in (("show", "run"), ("report", "run")):
        assert run(tmp_path, command=command, **home)[::2] == (0, "")
