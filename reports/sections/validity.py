"""Every reason against the numbers of a cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.numbers import counted
from reports.sections import Section
from reports.tables import Column, bare_scope, build, places
from reports.text import clipped, visible
from reports.words.facts import validity_note
from results.compare.reasons import REMARKS, weight

MOST = 3
"""Kinds of reasons with a line of their own."""


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
        Marked(cell, cell.reasons[name][0], visible(clipped(cell.reasons[name][1], 300)))
        for cell in seen.cells
        for name in sorted(cell.reasons, key=weight)
        if cell.is_measured
    ]
    words = validity_note(seen, bool(found))
    if not found:
        return Section("validity", "Validity", words=[words], finding=words)
    table = build(COLUMNS, found, lambda row: bare_scope(row.cell))
    finding = f"{words.partition('.')[0]}; {counted(len(found), 'reason')} in the table."
    said = [words, *_counts(seen), "The table has every reason of every cell."]
    return Section("validity", "Validity", table=table, words=said, finding=finding)


def _counts(seen: Overview) -> Iterator[str]:
    """A line for each kind of reason, the weightiest first."""
    trials, cells = Counter[str](), Counter[str]()
    for cell in (cell for cell in seen.cells if cell.is_measured):
        for name, (count, _) in cell.reasons.items():
            trials[name] += count
            cells[name] += 1
    every = sum(cell.trials for cell in seen.cells)
    kinds = sorted(trials, key=weight)
    for name in kinds[:MOST]:
        remark = ", which concerns single numbers" if name in REMARKS else ""
        where = counted(cells[name], "cell")
        yield f"{visible(name)}: {trials[name]:,} of {counted(every, 'trial')}, in {where}{remark}."
    if len(kinds) > MOST:
        yield f"And {counted(len(kinds) - MOST, 'kind')} of reasons more."
