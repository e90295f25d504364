"""What pins a backend's numbers, where it is not ours, and for what is no trial."""

from __future__ import annotations

from importlib import metadata

import pytest

from backends import BACKENDS, pins
from harness.core.closure import Sources


def test_a_package_that_is_not_ours_counts_by_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "theirs", "yaml.backend:Theirs")
    before = pins.code("theirs", Sources())
    assert [*before] == ["backend theirs", "package yaml"]
    monkeypatch.setattr(metadata, "version", lambda name: "another")
    after = pins.code("theirs", Sources())
    assert [name for name in after if after[name] != before[name]] == ["package yaml"]


def test_training_is_not_what_runs() -> None:
    """Though the module that asks in a calibration gets its prompts there."""
    asking = "backends.early_exit.calibration.prompts"
    found = pins.code("vllm-early-exit", Sources(), asking)
    assert "backends/early_exit/calibration/prompts.py" in found
    assert not [name for name in found if name.startswith("backends/training/")]
    assert pins.code_digest("vllm-early-exit", asking) != pins.code_digest("vllm-early-exit")
