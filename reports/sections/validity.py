"""Every reason against the numbers of a cell."""

from __future__ import annotations

from typing import NamedTuple

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.sections import Section
from reports.tables import Column, bare_scope, build, places
from reports.text import clipped, visible
from reports.words.facts import validity_note


class Marked(NamedTuple):
    """One reason against some trials of a cell."""

    cell: Cell
    trials: int
    reason: str


COLUMNS: tuple[Column[Marked], ...] = (
    *places(lambda row: row.cell),
    Column(
        "Trials", lambda row: f"{row.trials} of {row.cell.trials}", sort=lambda row: str(row.trials)
    ),
    Column("Reason", lambda row: row.reason, css="", marks=lambda _: "prose"),
)


def section(seen: Overview, _: Samples) -> Section:
    """A row per reason and cell, failures apart: those have a section of their own."""
    found = [
        Marked(cell, count, visible(clipped(text, 300)))
        for cell in seen.cells
        for count, text in cell.reasons.values()
        if cell.is_measured
    ]
    words = validity_note(seen, bool(found))
    if not found:
        return Section("validity", "Validity", words=[words])
    table = build(COLUMNS, found, lambda row: bare_scope(row.cell))
    return Section("validity", "Validity", words, table=table)
