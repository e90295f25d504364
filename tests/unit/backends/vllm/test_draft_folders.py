"""Folders that draft for vLLM: which of their files count, and what they are told for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import backends
from backends.checkpoints import models
from backends.vllm.speculative import VllmSpeculative
from harness.core.nouns import Model

pytest.importorskip("vllm")

DEMO = Model("demo")
NAME = "vllm-speculative"
MAPPED = {"use_heterogeneous_vocab": True}


def drafting(folder: Path) -> Path:
    """A copy of the demo's draft model."""
    return Path(shutil.copytree(models.BUNDLED["demo-draft"], folder))


def files(options: dict[str, Any]) -> list[str]:
    """The names of those by whose checksums a trial is known."""
    whole = {name: option.default for name, option in VllmSpeculative.OPTIONS.items()} | options
    return [file.name for file in VllmSpeculative.files(models.BUNDLED["demo"], whole)]


def test_the_tokenizer_counts_where_tokens_are_mapped_by_it(tmp_path: Path) -> None:
    folder = drafting(tmp_path / "draft")
    (folder / "tokenizer_config.json").unlink(missing_ok=True)
    own = files({"draft": str(folder)})
    assert own == ["config.json", "model.safetensors"]
    assert files({"draft": str(folder), "speculative": MAPPED}) == [*own, "tokenizer.json"]
    (folder / "tokenizer_config.json").write_text("{}")
    more = ["tokenizer.json", "tokenizer_config.json"]
    assert files({"draft": str(folder), "speculative": MAPPED}) == own + more
    assert files({"draft": str(folder)}) == own
    assert backends.warnings(NAME, DEMO, {"draft": str(folder), "speculative": MAPPED}) == []
