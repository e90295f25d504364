"""Folders of trained parameters in which a file is missing, or is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from backends import pins, warnings
from backends.checkpoints import models
from harness.core.errors import UserError
from harness.core.nouns import Model

HEADS = models.DEMO / "heads" / "mixed"
CLASSIFIER = models.DEMO / "early_exit" / "classifier"


@pytest.mark.parametrize("name", ["heads.json", "heads.safetensors"])
@pytest.mark.parametrize("backend", ["adadecode", "vllm-early-exit"])
def test_a_pipe_among_exit_heads_is_not_waited_for(tmp_path: Path, backend: str, name: str) -> None:
    folder = tmp_path / "heads"
    shutil.copytree(HEADS, folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    options = {"heads": str(folder)}
    with pytest.raises(UserError, match=f"{name}: expected a plain file, found a named pipe"):
        warnings(backend, Model("demo"), options)
    assert pins.files(backend, Model("demo"), options).get(f"heads/{name}", "missing") == "missing"


@pytest.mark.parametrize("name", ["classifier.json", "classifier.safetensors"])
def test_a_classifier_that_is_missing_or_a_pipe(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "classifier"
    shutil.copytree(CLASSIFIER, folder)
    (folder / name).unlink()
    options = {"measure": "classifier", "classifier": str(folder), "threshold": 0.5}
    with pytest.raises(UserError, match=rf"{name}: .*[Nn]o such file"):
        warnings("vllm-early-exit", Model("demo"), options)
    if name.endswith("safetensors"):
        with pytest.raises(UserError, match=rf"{name}: cannot be read: no such file"):
            warnings("vllm-early-exit", Model("demo"), options | {"threshold": "auto"})
    os.mkfifo(folder / name)
    with pytest.raises(UserError, match=f"{name}: expected a plain file, found a named pipe"):
        warnings("vllm-early-exit", Model("demo"), options)


def test_a_calibration_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "c.json")
    with pytest.raises(UserError, match="is no file"):
        warnings("vllm-early-exit", Model("demo"), {"calibration": str(tmp_path / "c.json")})


def test_a_model_s_configuration_that_is_nested_without_end(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(models.BUNDLED["demo"], model)
    (model / "generation_config.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"generation_config\.json: not readable as JSON"):
        models.resolve(Model(str(model)))
    (model / "generation_config.json").write_text(" " * (models.MAX_JSON_BYTES + 1))
    with pytest.raises(UserError, match="larger than 64 MiB"):
        models.resolve(Model(str(model)))
