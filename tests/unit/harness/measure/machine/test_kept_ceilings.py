"""Ceilings are kept for the machine that they were measured on, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.ceilings import Ceilings
from harness.measure.machine import ceilings
from harness.measure.machine.environment import environment, fingerprint

FOUND = Ceilings("cpu", "native-amx", {1: {100: 8.0}}, {1: 1e12}, {"L2": 64})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_they_come_back_with_the_environment_and_leave_the_fingerprint_alone() -> None:
    before = environment()
    assert before["ceilings"] is None
    ceilings.store(before, FOUND)
    after = environment()
    assert after["ceilings"] == FOUND.to_json()
    assert fingerprint(after) == fingerprint(before)


def test_another_machine_has_none() -> None:
    here = environment()
    ceilings.store(here, FOUND)
    assert ceilings.stored(here) == FOUND
    assert ceilings.stored(here | {"variables": {"OMP_NUM_THREADS": "1"}}) == FOUND
    for changed in ({"cpu": "another"}, {"cores": 99}, {"affinity": "0"}):
        assert ceilings.stored(here | changed) is None


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00\xff", '{"device": "cpu"}'])
def test_a_spoilt_file_counts_as_never_measured(content: str) -> None:
    here = environment()
    ceilings.store(here, FOUND).write_text(content, encoding="latin-1")
    assert ceilings.stored(here) is None


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "")

    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(OSError, match="Not a directory"):
        ceilings.store(environment(), FOUND)
    assert ceilings.stored(environment()) is None
