"""The answers that exits learn from: greedy ones, whatever the checkpoint's own settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.checkpoints import models
from backends.training.exits import data as exit_data
from backends.training.exits.data import TrainPrompt
from backends.training.exits.recipe import STATE

PROMPTS = [
    TrainPrompt("gsm8k", str(i), list(range(20 + i, 40 + 3 * i)), 24, False) for i in range(4)
]


def answered(model: Path, out: Path) -> list[list[int]] | None:
    (out / STATE).mkdir(parents=True)
    stops = models.stop_ids(model)
    return exit_data.answers(out, PROMPTS, model, stops, torch.zeros(1), lambda done: True)


@pytest.mark.parametrize("setting", [{"repetition_penalty": 5.0}, {"no_repeat_ngram_size": 1}])
def test_a_checkpoints_generation_settings_change_no_answer(
    model: Path, tmp_path: Path, setting: dict[str, Any]
) -> None:
    expected = answered(model, tmp_path / "plain")
    other = Path(shutil.copytree(model, tmp_path / "model"))
    path = other / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | setting))
    assert answered(other, tmp_path / "out") == expected
