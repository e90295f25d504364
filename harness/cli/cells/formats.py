"""The cells of a run for other programs: comma-separated values, and tables in Markdown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from harness.cli.cells.table import FOLDING, CellTable, fitted
from harness.cli.quality.told import HEADINGS, LEFT


def as_csv(cells: Sequence[Mapping[str, Any]]) -> str:
    """A row per cell with everything that is known of it, numbers as they are; nothing where a
    value is undefined, JSON where it is a list or a mapping."""
    names = list(dict.fromkeys(name for cell in cells for name in cell))
    rows = [names, *([_plain(cell.get(name)) for name in names] for cell in cells)]
    return "\n".join(map(_csv_line, rows))


def _csv_line(values: Sequence[Any]) -> str:
    """Python 3.11 quotes a carriage return only where it is part of its own line end."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(values)
    return text.getvalue().removesuffix("\r\n")


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict | bool) else value


def as_markdown(cells: Sequence[Mapping[str, Any]], quality: Sequence[CellTable] = ()) -> str:
    """The tables of `show`, each under its title; `quality`: `harness.cli.quality.told`'s."""
    found = fitted(cells)
    parts = [_markdown(table, found.headings, FOLDING) for table in found.tables]
    parts += [_markdown(table, HEADINGS, LEFT) for table in quality]
    return "\n\n".join([*parts, "  \n".join(found.notes)])


def _markdown(table: CellTable, headings: Sequence[str], left: Sequence[str]) -> str:
    rule = ["---" if heading in left else "---:" for heading in headings]
    rows = [headings, rule, *([_escaped(text) for text in row] for row in table.rows)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"### {_escaped(table.title)}", "", *lines])


def _escaped(text: str) -> str:
    """Without what Markdown would take for its own."""
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
