"""A classifier trained in a moment on the tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backends.training.classifier import train as classifier

SMALL: dict[str, Any] = {"rows": 6, "epochs": 6, "batch": 3, "rate": 5e-3}


def train(model: str | Path, out: Path, **changes: Any) -> dict[str, Any]:
    names = changes.pop("workloads", ["gsm8k"])
    return classifier.train_classifier(str(model), names, out, **SMALL | changes)
