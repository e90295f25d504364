"""A small experiment, with what its trials are made of pinned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.cli import wiring
from harness.core.nouns import Trial
from harness.experiment.config import Experiment, parse_experiment


def trials(model: Path, **changes: Any) -> list[Trial]:
    """Those of `resolved`."""
    return resolved(model, **changes).trials()


def resolved(model: Path | str, **changes: Any) -> Experiment:
    """Six requests to `scripted`, one at a time, but for `changes` of the file."""
    content = {
        "name": "x",
        "model": str(model),
        "backends": ["scripted"],
        "workloads": ["gsm8k"],
        "load": [{"kind": "closed", "concurrency": 1}],
        "requests": 6,
    }
    return wiring.resolve(parse_experiment(content | changes, "x.yaml", wiring.known()))
