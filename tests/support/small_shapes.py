"""Shapes small enough to generate in a moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backends.checkpoints.shapes.ladder import LADDER
from harness.core.nouns import Model

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1536,
}


def small_shape(directory: Path, layers: int | None = None, **changes: Any) -> Model:
    """A shape whose config.json is written into `directory`."""
    path = directory / "config.json"
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**LADDER["0.1b"], **SIZES, **changes}))
    return Model(str(path), shape=True, layers=layers)
