"""What `doctor` says of the sandbox is what trying to break out of it found."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from harness.cli import doctor
from workloads.sandbox import probe as sandbox_probe
from workloads.sandbox.probe import SandboxSupport


@pytest.mark.parametrize(
    ("support", "state", "words"),
    [
        (SandboxSupport(None, True, True), "ok", ("namespace of their own", "standard library")),
        (SandboxSupport(None, True, False), "ok", ("no network namespace", "standard library")),
        (SandboxSupport(None, False, True), "warning", ("namespace of their own", "no Landlock")),
        (SandboxSupport("it broke"), "missing", ("cannot be scored: it broke",)),
    ],
)
def test_sandbox_protections_are_named(
    monkeypatch: pytest.MonkeyPatch, support: SandboxSupport, state: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sandbox_probe, "support", lambda: support)
    found = next(f for f in doctor.examine() if f.subject == "sandbox")
    assert found.state == state
    assert all(word in found.detail for word in words)


@pytest.mark.parametrize(
    ("version", "gpu", "state"),
    [("2.13.0+cpu", "ok", "warning"), ("2.13.0+cpu", "missing", "ok"), ("2.13.0", "ok", "ok")],
)
def test_a_torch_for_cpus_beside_a_gpu_is_told(
    monkeypatch: pytest.MonkeyPatch, version: str, gpu: doctor.State, state: str
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    monkeypatch.setattr(doctor, "_gpu", lambda: doctor.Finding("gpu", gpu, ""))
    found = doctor._torch()
    assert found.state == state
    assert ("built for CPUs" in found.detail) == (state == "warning")


def test_ceilings_are_measured_by_a_command_of_this_program(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A quick one stands in for it."""
    run = subprocess.run
    asked: list[str] = []

    def quick(command: list[str], **options: Any) -> None:
        asked.extend(command[3:-1])
        run([*command[:3], "--version", command[-1]], check=True, env=options["env"])

    monkeypatch.setattr(subprocess, "run", quick)
    doctor.measure_apart()
    assert asked == ["doctor", "--bandwidth"]
    assert capfd.readouterr().out.startswith("decodebench ")
