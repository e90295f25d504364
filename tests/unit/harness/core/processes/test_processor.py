"""Processors are named, or told apart by their numbers."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from harness.core.processes import processor

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
    monkeypatch.setattr(processor, "Path", lambda name: tmp_path / str(name).strip("/"))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    numbers = "" if "model name" in cpuinfo or "Model" in cpuinfo else "aarch64 "
    assert processor.cpu_model() == numbers + expected


def test_a_mac_is_named_by_its_chip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processor, "Path", lambda name: tmp_path / "nothing")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    asked: list[tuple[str, ...]] = []

    def said(*command: str) -> str:
        asked.append(command)
        return "Apple M4 Max"

    monkeypatch.setattr(processor, "said", said)
    assert processor.cpu_model() == "Apple M4 Max"
    assert asked == [("sysctl", "-n", "machdep.cpu.brand_string")]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("fpu avx2 fma", False), ("avx512f avx512_bf16", True), ("asimd bf16 i8mm", True)],
)
def test_what_multiplies_in_bfloat16_is_told_by_its_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str, expected: bool
) -> None:
    (tmp_path / "cpuinfo").write_text(f"{XEON}flags\t\t: {flags}\n")
    monkeypatch.setattr(processor, "Path", lambda name: tmp_path / "cpuinfo")
    assert processor.multiplies_bfloat16() == expected
