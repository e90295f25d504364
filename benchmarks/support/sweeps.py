"""Experiments that a benchmark runs as a user would, and what came of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from reports.cells import Overview, overview
from results import load


def measured(out: Path, content: dict[str, Any]) -> Overview:
    """Run an experiment into a folder, its file beside it, and what the report sees of it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    file = out.with_suffix(".yaml")
    file.write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "harness.cli.main", "run", str(file), "--out", str(out)]
    subprocess.run(command, check=True)
    return overview(load(out))


def rounded(value: float | None) -> float | None:
    """Three decimals."""
    return None if value is None else round(value, 3)
