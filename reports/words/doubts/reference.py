"""Why nothing is faster or slower than the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reports.text import visible

if TYPE_CHECKING:
    from reports.cells import Cell
    from results import Run


def why_no_speedup(run: Run, cells: Sequence[Cell]) -> str:
    """As the end of a sentence; empty when the reference has finished trials."""
    if not run.experiment:  # `alerts` says what to do
        return "no reference is known"
    if not isinstance(name := run.experiment.get("reference"), str):
        return "the experiment names no reference"
    if not (own := [cell for cell in cells if cell.variant.backend == name]):
        return f"the reference, {visible(name)}, was not run"
    failed = f"every trial of the reference, {visible(name)}, failed"
    return "" if any(cell.is_measured for cell in own) else failed
