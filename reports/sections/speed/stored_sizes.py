"""Beside a run of the small bundled model: what became of such ratios on larger ones, as stored."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from reports.cells import Overview, overview
from reports.collect import Samples
from reports.sections import Section
from reports.sections.speed import sizes
from reports.text import visible
from reports.words.scale import SMALL
from results import load
from results.run import Run

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
RECORDS = ("cpu/sizes", "cpu-avx512bf16/sizes")
"""Each says what those before it do not. The first has the largest model."""
ID = "stored-sizes"
_NOTE = (
    "The bundled model lives in a processor's cache, and much of its steps is overhead. So the "
    "same methods ran on models of random weights at the sizes that users run, with the exits and "
    "acceptances that this model decided: measured cost, replayed decisions. Stored records: "
    "'decodebench report results/reference/{0}' draws one, 'decodebench run "
    "experiments/sizes_all.yaml' measures it here."
)


def section(seen: Overview, _: Samples) -> Section | None:
    """The stored records' sentences; None for runs of other models, and without a record."""
    if {row["model"] for row in seen.rows} != {SMALL}:
        return None
    words: list[str] = []
    told: set[str] = set()
    for name in RECORDS:
        if (REFERENCE / name).is_dir():
            words += _words(load(REFERENCE / name), told)
    if not words:
        return None
    note = _NOTE.format(RECORDS[0])
    return Section(ID, "On larger models", note, words=words, short="Larger models")


def _words(run: Run, told: set[str]) -> list[str]:
    """What a record says of backends that none before it told of, which it adds to `told`."""
    stored = overview(run)
    found = _new(sizes.sized(stored), told)
    words = sizes.sentences(found)
    told |= {own.cell.variant.backend for own in found}
    if not words:
        return []
    last = max(str(row["started_at"]) for row in stored.rows)
    machine = next(s.record.environment.get("cpu") for s in run.stored)
    over = visible(str(run.experiment["reference"]))
    head = (
        f"Measured cost, replayed decisions, over {over}, on {visible(str(machine))}, {last[:10]}:"
    )
    return [head, *words]


def _new(found: list[sizes.Sized], told: Collection[str]) -> list[sizes.Sized]:
    return [
        own for own in found if own.cell.value("speedup") and own.cell.variant.backend not in told
    ]
