"""Trials of a small experiment, with what they are made of pinned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.cli import wiring
from harness.core.nouns import Trial
from harness.experiment.config import parse_experiment


def trials(model: Path, **changes: Any) -> list[Trial]:
    """Of six requests to `scripted`, one at a time, but for `changes` of the file."""
    content = {
        "name": "x",
        "model": str(model),
        "backends": ["scripted"],
        "workloads": ["gsm8k"],
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 6,
    }
    experiment = parse_experiment(content | changes, "x.yaml", wiring.known())
    return wiring.resolve(experiment).trials()
