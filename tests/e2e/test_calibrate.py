"""`decodebench calibrate` on a real vLLM: interrupted, taken up, asked again, put to use."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.checkpoints.models import BUNDLED
from backends.early_exit.calibration.answers import SUFFIX
from backends.early_exit.calibration.files import open_calibration
from tests.support.harness.command import decodebench, environment, in_full, printed, rows_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]
ASKED = [
    *("--model", "demo", "--measure", "softmax", "--workload", "gsm8k,xsum", "--rows", "6"),
    *("--target", "0.6", "--layers", "1,2,4", "--grid", "0.9,0.3", "--whole-curve"),
    *("--risk", "rouge_l_to_full", "--per", "mixture"),
]
PROMPTS = 12


def ask(out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return decodebench("calibrate", *ASKED, "--out", out, *more)


def answers(out: Path) -> list[str]:
    """The lines that hold answers."""
    path = out.with_name(out.name + SUFFIX)
    if not path.is_file():
        return []
    return [line for line in path.read_text().splitlines(True) if '"answers"' in line]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str, list[str]]:
    """The calibration's file, and what a Ctrl-C after a few answers left: code, line, answers."""
    out = tmp_path_factory.mktemp("calibrate") / "c.json"
    process = subprocess.Popen(
        in_full("calibrate", *ASKED, "--out", out),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 1500
    while len(answers(out)) < 3 and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=600)
    return out, process.returncode, told, answers(out)


@pytest.fixture(scope="module")
def finished(interrupted: tuple[Path, int, str, list[str]]) -> tuple[Path, str]:
    out = interrupted[0]
    done = ask(out)
    assert done.returncode == 0, done.stderr[-3000:]
    return out, done.stdout


def test_ctrl_c_keeps_what_was_answered(
    interrupted: tuple[Path, int, str, list[str]], finished: tuple[Path, str]
) -> None:
    out, code, told, kept = interrupted
    assert code == 130, f"{len(kept)} answers of {3 * PROMPTS} kept; {told}"
    assert told.splitlines()[-1] == "decodebench: interrupted; what was finished is stored"
    assert "Traceback" not in told
    assert 3 <= len(kept) < 3 * PROMPTS
    assert answers(out)[: len(kept)] == kept
    assert len(answers(out)) == 3 * PROMPTS


def test_the_statement_is_that_of_the_file(finished: tuple[Path, str]) -> None:
    found = open_calibration(finished[0], BUNDLED["demo"])
    assert found.statement in finished[1]
    assert found.layers == (1, 2, 4)
    assert found.prompts == {"gsm8k": 6, "xsum": 6}
    high, low = found.curve
    assert 0 < high.early_exit_rate < low.early_exit_rate < 1
    assert 1 <= low.mean_exit_layer < high.mean_exit_layer < 8
    assert low.quality < high.quality <= 1


def test_another_target_is_answered_without_an_engine(
    finished: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "other.json"
    kept = finished[0].with_name(finished[0].name + SUFFIX)
    shutil.copy(kept, out.with_name(out.name + SUFFIX))
    done = ask(out, "--target", "0.5")
    assert (done.returncode, done.stderr) == (0, "")
    assert "is at least 0.5 at threshold" in done.stdout
    assert answers(out) == answers(finished[0])
    refused = ask(out, "--target", "0.8")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "12 prompts cannot show a quality of 0.8" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_the_backend_runs_with_what_was_chosen(finished: tuple[Path, str], tmp_path: Path) -> None:
    backend = {"name": "vllm-early-exit", "calibration": str(finished[0])}
    experiment: dict[str, Any] = {
        "name": "tiny",
        "model": "demo",
        "reference": "vllm-early-exit",
        "backends": [backend],
        "workloads": ["gsm8k"],
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 2,
        "repeats": 1,
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(experiment))
    printed("run", "tiny.yaml", cwd=tmp_path)
    (row,) = rows_of("runs/tiny", tmp_path)
    record = next((tmp_path / "runs/tiny/trials").glob("*.json"))
    told = json.loads(record.read_text())["backend"]["options"]
    found = open_calibration(finished[0], BUNDLED["demo"])
    assert tuple(told["layers"]) == found.layers
    assert tuple(told["thresholds"]) == found.thresholds
    assert row["early_exit_rate"] > 0
