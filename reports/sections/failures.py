"""Trials that ended badly, with their errors."""

from __future__ import annotations

from typing import NamedTuple

from harness.core.names import repeat_label
from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.numbers import counted
from reports.sections import Section
from reports.tables import Column, bare_scope, build, places
from reports.text import clipped, visible


class Failure(NamedTuple):
    """Trials of one cell that ended badly in the same way."""

    cell: Cell
    status: str
    error: str
    repeats: str = ""


COLUMNS: tuple[Column[Failure], ...] = (
    *places(lambda row: row.cell),
    Column("Repeats", lambda row: row.repeats),
    Column("Status", lambda row: row.status, css="", marks=lambda _: "bad"),
    Column("Error", lambda row: row.error, css="", marks=lambda _: "prose mono"),
)


def section(seen: Overview, _: Samples) -> Section:
    """A row per cell and error."""
    found = _failures(seen)
    if not found:
        none = f"None of {counted(sum(cell.trials for cell in seen.cells), 'trial')} failed."
        return Section("failures", "Failed trials", words=[none], short="Failures", finding=none)
    note = "These trials left no measurement. Running the same command again runs only them."
    table = build(COLUMNS, found, lambda row: bare_scope(row.cell))
    lost, every = (sum(getattr(cell, n) for cell in seen.cells) for n in ("failed", "trials"))
    finding = f"{lost} of {counted(every, 'trial')} failed: {found[0].error}"
    return Section(
        "failures", "Failed trials", note, table=table, short="Failures", finding=finding
    )


def _failures(seen: Overview) -> list[Failure]:
    """Every trial whose status is not "ok", with its error; equal ones of a cell in one row."""
    cells = seen.by_key()
    repeats: dict[Failure, list[str]] = {}
    for row in seen.rows:
        if row["status"] != "ok":
            error = visible(clipped(row["error"] or "no error was recorded", 1000))
            same = Failure(cells[row["key"]], row["status"].replace("_", " "), error)
            repeats.setdefault(same, []).append(repeat_label(row["repeat"]))
    return [one._replace(repeats=", ".join(numbers)) for one, numbers in repeats.items()]
