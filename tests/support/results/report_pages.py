"""Pages of made-up runs, and what their sections hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reports.cells import Cell, Overview
from reports.page import write_report
from reports.words.techniques import leaves_early
from tests.support.results.report_runs import BATCHES, MadeUpBackend, write_run

LEAVING: dict[str, Any] = {
    "workloads": ["cnn_dailymail", "gsm8k"],
    "loads": BATCHES[:2],
    "repeats": 2,
    "requests": 24,
}
"""A run of backends whose batches leave early."""


def written(folder: Path, *engines: MadeUpBackend, **changes: Any) -> str:
    """The page of a small run of such backends."""
    options = {**LEAVING, "workloads": ["gsm8k"], "repeats": 1, "requests": 12, **changes}
    return write_report(write_run(folder, engines=engines, **options)).read_text()


def section(text: str, name: str) -> str:
    """One section of a page; empty where it has none."""
    found = re.search(rf'<section id="{name}">.*?</section>', text, re.DOTALL)
    return found.group() if found else ""


def rows(text: str, name: str) -> list[str]:
    """The rows of the section's table."""
    return re.findall(r"<tr class=.*?</tr>", section(text, name), re.DOTALL)


def leaving(seen: Overview) -> list[Cell]:
    """The cells whose batches leave early."""
    return [cell for cell in seen.cells if leaves_early(cell)]
