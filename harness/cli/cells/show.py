"""The command ``show``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from harness.core.errors import UserError

RunDir = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def show(
    directory: RunDir,
    as_json: AsJson = False,
    wide: Annotated[bool, typer.Option(help="All columns, however wide.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="A row per cell, with all metrics.")
    ] = False,
    markdown: Annotated[bool, typer.Option(help="The tables in Markdown.")] = False,
) -> None:
    """Show the results of a run: a table, or with --json every metric of every trial."""
    import results

    if sum((as_json, wide, as_csv, markdown)) > 1:
        raise UserError("show: expected one of --json, --wide, --csv and --markdown")
    stored = results.load(directory, warn_of_damage)
    if stored.stored and not stored.experiment:
        missing = f"{directory / 'experiment.yaml'} is missing"
        print(f"warning: {missing}: copy it there, or no reference is known", file=sys.stderr)
    if as_json:
        from results.rows import summaries

        print_json_lines(summaries(stored))
        return
    if not stored.stored:
        raise UserError(f"{directory}: no trials in it; 'run' goes on with one that was stopped")
    from harness.cli import display
    from harness.cli.cells import formats
    from harness.cli.quality.told import quality_tables, timed
    from results.rows import cells

    found = cells(stored)
    if as_csv:
        print(formats.as_csv(found))
    elif markdown:
        print(formats.as_markdown(timed(found), quality_tables(stored, found)))
    else:
        display.print_run(stored, found, None if wide else display.terminal_width())


def warn_of_damage(error: UserError) -> None:
    """Say that a record is left out, and why."""
    print(f"warning: left out: {error}", file=sys.stderr)


def print_json_lines(rows: Sequence[dict[str, Any]]) -> None:
    """Print an object per line, as every ``--json`` does."""
    for row in rows:
        print(json.dumps(row, allow_nan=False))
