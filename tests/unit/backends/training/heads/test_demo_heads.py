"""The exit heads that are shipped with the demo model, and what its model card says of them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

from backends.checkpoints import exit_heads, models
from workloads import WORKLOADS

HEADS = models.DEMO / "heads"
SHIPPED = ["cnn_dailymail", "full", "gsm8k", "humaneval", "mixed", "xsum"]


def about(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HEADS / name / "heads.json").read_text())
    return found


def test_what_is_shipped_fits_into_git() -> None:
    assert sorted(path.name for path in HEADS.iterdir()) == SHIPPED
    files = [path for path in HEADS.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"heads.json", "heads.safetensors"}
    assert sum(path.stat().st_size for path in files) < 5e6


@pytest.mark.parametrize("name", SHIPPED)
def test_the_heads_belong_to_the_demo_model_and_beat_its_own_head(name: str) -> None:
    folder = exit_heads.open_folder(HEADS / name, models.BUNDLED["demo"])
    found = about(name)
    assert found["finished"] is True
    assert found["kind"] == ("full" if name == "full" else "lightweight")
    assert set(found["workloads"]) == (set(WORKLOADS) if name in ("mixed", "full") else {name})
    trace = folder.tensors
    assert 2000 <= len(trace["trace.agrees"]) <= 2500 or name in WORKLOADS
    assert int(trace["trace.start"][-1]) == len(trace["trace.agrees"]) > 1500
    for column, layer in enumerate(folder.layers):
        figures = found["report"]["layers"][str(layer)]["all"]
        assert figures["trained"]["kl"] <= figures["original"]["kl"]
        share = float(trace["trace.agrees"][:, column].float().mean())
        assert share == pytest.approx(figures["trained"]["agreement"], abs=0.03)
        matrix = trace.get(f"layer.{layer}.transform", trace.get(f"layer.{layer}.head"))
        assert matrix is not None
        assert matrix.dtype == torch.bfloat16


def test_the_model_cards_figures_are_those_of_the_reports() -> None:
    card = (models.DEMO / "README.md").read_text()
    section = card.split("## Exit heads")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (\d) \| (.+) \|$", section, re.MULTILINE)
    assert {name for name, _, _ in rows} == set(SHIPPED)
    for name, layer, cells in rows:
        figures = about(name)["report"]["layers"][layer]["all"]
        expected = [
            *(f"{figures[kind]['kl']:.3f}" for kind in ("original", "trained")),
            *(f"{figures[kind]['agreement']:.3f}" for kind in ("original", "trained")),
            *(f"{figures[kind]['over']['0.75']['share']:.3f}" for kind in ("original", "trained")),
            f"{figures['trained']['over']['0.75']['agreement']:.3f}",
        ]
        assert cells.split(" | ") == expected
