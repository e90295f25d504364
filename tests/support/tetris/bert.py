"""BERT-Base on the TETRIS paper's devices, as the experiment files have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backends.tetris.figures.point import FigurePoint
from harness.cli.figures.model_file import read_model

FILES = Path(__file__).parents[3] / "experiments/tetris"
BERT = read_model(FILES / "models/bert_base.yaml")


def point(**changed: Any) -> FigurePoint:
    """A number on 16 V100 at batch 8."""
    told = {
        "model": BERT,
        "clusters": ((("V100", 16),),),
        "batches": (8,),
        "copies": (1,),
        "slo_ms": 100.0,
        "requests": 1_000,
    }
    return FigurePoint(**{**told, **changed})
