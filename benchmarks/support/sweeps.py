"""Experiments that a benchmark runs as a user would, and what came of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from reports.cells import Overview, overview
from results import load

MAIN = (sys.executable, "-m", "harness.cli.main")


def command(out: Path, content: dict[str, Any]) -> list[str]:
    """What runs an experiment into a folder. Its file is written beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    file = out.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(content))
    return [*MAIN, "run", str(file), "--out", str(out)]


def seen(out: Path) -> Overview:
    """What the report sees of a run."""
    return overview(load(out))


def measured(out: Path, content: dict[str, Any]) -> Overview:
    """Run an experiment into a folder, and what the report sees of it."""
    subprocess.run(command(out, content), check=True)
    return seen(out)


def rounded(value: float | None) -> float | None:
    """Three decimals."""
    return None if value is None else round(value, 3)
