"""The tables that the terminal shows. rich is imported when needed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.cli.cells.table import FOLDING, CellTable, fitted
from harness.cli.cells.values import NONE
from harness.cli.quality.told import HEADINGS, LEFT, quality_tables, timed
from harness.core.files import size
from harness.core.names import QUALITY, repeat_label
from harness.core.nouns import Trial
from results.compare.machines import differing, machines, pooled_hosts

if TYPE_CHECKING:
    from rich.table import Table

    from harness.cli.doctor import Finding
    from results import Run


def print_plan(trials: Sequence[Trial], note: Callable[[Trial], str]) -> None:
    """What a run would do, a trial a line, with a note on each."""
    several = len({trial.model for trial in trials}) > 1
    for trial in trials:
        options = json.dumps(dict(trial.options)) if trial.options else ""
        model = trial.model.label() if several else ""
        count = f" of {trial.requests} more" if trial.load.kind == QUALITY else ""
        load = f"{trial.load.label()}{count}"
        parts = (trial.backend, options, model, trial.workload.name, load)
        line = "  ".join(part for part in parts if part) + f"  repeat {repeat_label(trial.repeat)}"
        print("  ".join(filter(None, (line, note(trial)))))
    timed = [trial for trial in trials if trial.load.kind != QUALITY]
    each = f" of {timed[0].requests} requests" if timed else ""
    more = len(trials) - len(timed)
    told = f" and {more} of more prompts, for quality" if more else ""
    named = "trial" if len(timed) == 1 else "trials"
    print(f"{len(timed)} {named}{each}{told}; nothing was run")


WIDTH = 160
"""Of a pipe, which has no width of its own."""


def terminal_width() -> int | None:
    """Columns of the terminal, or those that the environment names; None for a pipe."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return shutil.get_terminal_size().columns
    return None


def print_run(run: Run, cells: Sequence[Mapping[str, Any]], width: int | None = None) -> None:
    """What `print_cells` prints of a run's cells, and tables of its answers where more prompts were
    asked than timed."""
    if own := timed(cells):
        print_cells(own, width)
    for table in quality_tables(run, cells):
        _print_quality(table, width)
    environments = [stored.record.environment for stored in run.stored]
    if (count := machines(environments)) > 1:
        _print_line(
            f"trials of {count} machines or set-ups, which differ in "
            f"{', '.join(differing(environments))}: their rows stand apart",
            width,
        )
    if hosts := pooled_hosts(environments):
        _print_line(f"hosts of one kind, pooled: {', '.join(hosts)}", width)


def print_cells(cells: Sequence[Mapping[str, Any]], width: int | None = None) -> None:
    """The result tables: one for each workload and load, a row per cell, repeats pooled. With a
    width the columns that fit into it, with medians alone where p99s do not fit beside them."""
    shown = fitted(cells, width)
    for one in shown.tables:
        table = _table()
        table.title, table.title_justify = one.title, "left"
        for heading, least in zip(shown.headings, shown.widths, strict=True):
            folds = heading in FOLDING and width is not None
            table.add_column(
                heading,
                justify="left" if heading in FOLDING else "right",
                no_wrap=not folds and heading != "valid",
                overflow="fold",
                min_width=least,
            )
        for row in one.rows:
            table.add_row(*row)
        _print(table, width)
    for note in shown.notes:
        _print_line(note, width)


def _print_line(text: str, width: int | None) -> None:
    print(text if width is None else textwrap.fill(text, width, subsequent_indent="  "))


def _print_quality(one: CellTable, width: int | None) -> None:
    table = _table()
    table.title, table.title_justify = one.title, "left"
    for heading in HEADINGS:
        words = heading in LEFT
        table.add_column(heading, justify="left" if words else "right", no_wrap=not words)
    for row in one.rows:
        table.add_row(*row)
    _print(table, width)


def print_bias(rows: Iterable[Mapping[str, Any]]) -> None:
    """The selftest's table: truth, measured and bias, in ms for latencies and % for rates."""
    table = _table("scenario", "metric")
    for heading in ("truth", "measured", "bias", "bound"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for row in rows:
        factor, unit = (1e3, " ms") if row["kind"] == "latency" else (1e2, " %")
        shown = factor if row["kind"] == "latency" else 1.0
        values = [f"{row[key] * shown:.4g}" for key in ("truth", "measured")]
        bounds = [f"{row[key] * factor:.3f}{unit}" for key in ("bias", "bound")]
        mark = "" if row["within"] else "too large"
        table.add_row(row["scenario"], row["metric"], *values, *bounds, mark)
    _print(table)


def print_findings(findings: Iterable[Finding]) -> None:
    """The doctor's table."""
    table = _table("what", "state", "detail")
    for finding in findings:
        table.add_row(finding.subject, finding.state, finding.detail)
    _print(table)


def print_catalogue(what: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """What ``decodebench list`` shows: a row per entry, and per option where there are options."""
    if what == "backends":
        table = _table("backend", "option", "type", "default", "what it does")
        for row in rows:
            told = row.get("error") or row["text"]
            table.add_row(row["name"], "", "", "", told, end_section=not row["options"])
            for key, option in row["options"].items():
                default = json.dumps(option["default"])
                table.add_row("", key, option["type"], default, option["help"])
    else:
        table = _table(*rows[0])
        for row in rows:
            table.add_row(*(_text(value) for value in row.values()))
    _print(table)


def print_cache(rows: Sequence[Mapping[str, Any]]) -> None:
    """What ``decodebench cache`` shows, and how much it is in all."""
    table = _table("name", "kind", "size", "last used")
    for row in rows:
        table.add_row(row["name"], row["kind"], size(row["bytes"]), row["used_at"])
    if rows:
        _print(table)
    print(f"{len(rows)} in the cache, {size(sum(row['bytes'] for row in rows))}")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return NONE if value is None else str(value)


def _table(*headings: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(*headings, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)


def _print(table: Table, width: int | None = None) -> None:
    from rich.console import Console, ConsoleDimensions
    from rich.measure import Measurement

    console = Console(markup=False, emoji=False, highlight=False)
    unbounded = console.options.update_width(sys.maxsize)
    least = Measurement.get(console, unbounded, table).minimum
    # a pipe has no width, and on a narrow terminal wrapped lines beat truncated numbers; the height
    # is there because rich takes a dumb terminal for 80 columns unless it has both
    wide = max(console.width, WIDTH) if width is None else width
    console.size = ConsoleDimensions(max(wide, least), console.height)
    console.print(table)
