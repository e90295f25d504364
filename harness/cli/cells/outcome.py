"""What a run says at its end: the table, what is unsound in it, and what to do next."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.cli import display
from harness.cli.cells.show import warn_of_damage
from harness.cli.cells.values import doubts
from harness.core.errors import UserError, as_argument
from harness.core.nouns import SAMPLES_NEEDED
from harness.measure.sweep import SweepResult

MOST_TOLD = 5


def tell_results(directory: Path) -> None:
    """Print the table of a run's folder, its unsound cells and the next command. Probes of searches
    and sweeps have lines of their own."""
    import results
    from results.goodput.stored import without_probes
    from results.rows import cells

    stored = without_probes(results.load(directory, warn_of_damage))
    if stored.stored:
        found = cells(stored)
        width = display.terminal_width()
        display.print_run(stored, found, width)
        for line in unsound(found):
            print(line if width is None else textwrap.fill(line, width, subsequent_indent="    "))
    place = as_argument(directory)
    print(f"next: decodebench report {place}   (the page; again: decodebench show {place})")


def raise_refusal(result: SweepResult) -> None:
    """An experiment of which nothing could run for its input is bad input, in one line. Where other
    trials ran, each refusal is told once."""
    if result.refusals and result.refusals.total() == result.statuses.total() and not result.stored:
        raise UserError("; ".join(result.refusals))
    for refusal, count in result.refusals.items():
        trials = "trial" if count == 1 else "trials"
        print(f"{refusal} ({count} {trials} failed)", file=sys.stderr)


def trials_by_status(result: SweepResult) -> str:
    """``trials: 2 stored, 6 ok``."""
    counts: dict[str, int] = {"stored": result.stored}
    counts |= {str(status): count for status, count in result.statuses.items()}
    parts = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
    return f"trials: {', '.join(parts) or 'none'}"


def unsound(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines that say which cells are not to be believed, and the weightiest reason of each."""
    doubted = [cell for cell in cells if not cell["valid"]]
    if not doubted:
        yield f"sound: all {len(cells)} cells"
        return
    yield f"unsound: {len(doubted)} of {len(cells)} cells"
    for cell in doubted[:MOST_TOLD]:
        name = cell.get("label") or cell["backend"]
        yield f"  {name}, {cell['workload']}, {cell['load']}: {_reason(cell)}"
    if len(doubted) > MOST_TOLD:
        yield f"  and {len(doubted) - MOST_TOLD} more"


def _reason(cell: Mapping[str, Any]) -> str:
    """The weightiest of those that make it unsound: a remark explains nothing."""
    failed = {name: count for name, count in cell["statuses"].items() if name != "ok"}
    if failed:
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in failed.items())
    return next(iter(doubts(cell)), f"fewer than {SAMPLES_NEEDED['p50']} answers")
