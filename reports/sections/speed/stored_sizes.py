"""Beside a run of the small bundled model: what became of such ratios on larger ones, as stored."""

from __future__ import annotations

from pathlib import Path

from reports.cells import Overview, overview
from reports.collect import Samples
from reports.sections import Section
from reports.sections.speed import sizes
from reports.text import visible
from reports.words.scale import SMALL
from results import load

RECORD = Path(__file__).parents[3] / "results" / "reference" / "cpu" / "sizes"
ID = "stored-sizes"


def section(seen: Overview, _: Samples) -> Section | None:
    """The stored record's sentences; None for runs of other models, and without the record."""
    if {row["model"] for row in seen.rows} != {SMALL} or not RECORD.is_dir():
        return None
    run = load(RECORD)
    stored = overview(run)
    words = sizes.sentences([own for own in sizes.sized(stored) if own.cell.value("speedup")])
    if not words:
        return None
    last = max(stored.rows, key=lambda row: str(row["started_at"]))
    machine = next(s.record.environment.get("cpu") for s in run.stored)
    note = (
        "The bundled model lives in a processor's cache, and much of its steps is overhead. So the "
        "same methods ran on models of random weights at the sizes that users run, with the exits "
        "and acceptances that this model decided: measured cost, replayed decisions. A stored "
        f"record, of {visible(str(machine))}, {str(last['started_at'])[:10]}: 'decodebench report "
        "results/reference/cpu/sizes' draws it, 'decodebench run experiments/sizes.yaml' measures "
        "it here."
    )
    first = f"Measured cost, replayed decisions, over {visible(str(run.experiment['reference']))}:"
    words = [first, *words]
    return Section(ID, "On larger models", note, words=words, short="Larger models")
