"""What each speed-up is made of, on the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from reports.cells import Cell, Overview, overview
from reports.collect import Samples
from reports.sections.speed import parts
from results import load

FACTORS: dict[str, Any] = {
    "speedup_steps": 3.0,
    "speedup_steps_low": 2.9,
    "speedup_steps_high": 3.1,
    "speedup_step_time": 0.5,
    "speedup_step_time_low": 0.4,
    "speedup_step_time_high": 0.6,
    "speedup_length": 1.25,
    "speedup_length_low": 1.25,
    "speedup_length_high": 1.25,
}


def seen(folder: Path, **metrics: Any) -> Overview:
    found = overview(load(folder))
    cells = [replace(c, metrics={**c.metrics, **metrics}) for c in found.cells]
    return replace(found, cells=tuple(cells))


def test_a_row_for_each_cell_that_counts_steps(run_dir: Path) -> None:
    samples = Samples()
    none = dict.fromkeys(FACTORS)
    assert parts.section(seen(run_dir, **none), samples) is None
    made = parts.section(seen(run_dir, **FACTORS), samples)
    assert made is not None
    assert made.table is not None
    rivals = [c for c in overview(load(run_dir)).cells if not c.variant.is_reference]
    assert len(made.table.rows) == len(rivals)
    shown = [(cell.text, cell.small) for cell in made.table.rows[0].cells[3:]]
    assert shown == [("3.00", "[2.90, 3.10]"), ("0.50", "[0.40, 0.60]"), ("1.25", "[1.25, 1.25]")]


def test_what_is_void_is_struck_through(run_dir: Path) -> None:
    found = seen(run_dir, **FACTORS, void_metrics=["speedup_steps"])
    made = parts.section(found, Samples())
    assert made is not None
    assert made.table is not None
    marks = ["struck" in cell.css for cell in made.table.rows[0].cells[3:]]
    assert marks == [True, False, False]


def test_the_line_names_one_cell_with_both_factors_and_their_product(run_dir: Path) -> None:
    found = seen(run_dir, **FACTORS)
    far: dict[str, Any] = {"speedup_steps": 5.32, "speedup_step_time": 0.13}
    void: dict[str, Any] = {"speedup_steps": 9.0, "void_metrics": ("speedup_steps",)}

    def changed(place: int, cell: Cell) -> Cell:
        own = {3: far, 2: void}.get(place, {})
        return replace(cell, metrics={**cell.metrics, **own})

    cells = tuple(changed(place, cell) for place, cell in enumerate(found.cells))
    made = parts.section(replace(found, cells=cells), Samples())
    assert made is not None
    where = f"{cells[3].variant.label} on {cells[3].workload}, {cells[3].load}"
    assert made.finding == (
        f"Furthest from 1, {where}: fewer steps for a token make ×5.32, the time of a step ×0.13, "
        "together ×0.69."
    )
