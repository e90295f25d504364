"""The EAGLE-3 head that is shipped with the demo model, and what its model card says of it."""

from __future__ import annotations

import json
import re

import pytest
import torch
from safetensors.torch import load_file

import backends
from backends.checkpoints import models
from backends.checkpoints.bound_files import read_bound
from backends.checkpoints.draft_heads.check import BUNDLED, check_target
from backends.checkpoints.draft_heads.files import ABOUT, FORMAT, TENSORS
from harness.core.errors import UserError
from harness.core.nouns import Model
from workloads import WORKLOADS

FOLDER = BUNDLED["eagle3"]


def test_it_belongs_to_the_demo_model_and_fits_into_git() -> None:
    about = read_bound(FOLDER / ABOUT, models.BUNDLED["demo"], FORMAT)
    assert about["finished"] is True
    assert set(about["recipe"]["workloads"]) == set(WORKLOADS)
    check_target("", "eagle3", FOLDER, models.BUNDLED["demo"])
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 3e6
    tensors = load_file(FOLDER / TENSORS)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())


def test_the_model_cards_figures_are_those_of_the_report() -> None:
    report = json.loads((FOLDER / ABOUT).read_text())["report"]["held_out"]
    card = (models.DEMO / "README.md").read_text()
    section = card.split("## EAGLE-3 head")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (\d.+) \|$", section, re.MULTILINE)
    assert {name for name, _ in rows} == set(report)
    for name, cells in rows:
        own = report[name]
        expected = [f"{own['tokens_per_step']:.2f}", *(f"{x:.3f}" for x in own["acceptance"])]
        assert cells.split(" | ") == expected, name


def test_auto_finds_it_for_the_demo_model_alone() -> None:
    pytest.importorskip("vllm")
    options = {"method": "eagle3"}
    backends.warnings("vllm-speculative", Model("demo"), options)
    with pytest.raises(UserError, match="eagle3 needs a trained head, and none is bundled"):
        backends.warnings("vllm-speculative", Model("demo-draft"), options)
    with pytest.raises(UserError, match="medusa needs a trained head, and none is bundled"):
        backends.warnings("vllm-speculative", Model("demo"), {"method": "medusa"})
