"""What the gate found, as tables on the terminal. rich is imported when needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from results.compare.gate.calibration import HeldMargin
    from results.compare.gate.decision import Decision, GateRow

WIDTH = 170
NONE = "–"
HEADINGS = ("metric", "BASE", "NEW", "worse by", "90%", "margin", "found from", "verdict")
STYLES = {"pass": "green", "fail": "bold red", "inconclusive": "yellow"}


def print_decision(decision: Decision) -> None:
    """A table for each workload and load, then what is missing, and the verdict last."""
    groups: dict[tuple[str, str, str], list[GateRow]] = {}
    for row in decision.rows:
        groups.setdefault((row.cell.workload, row.cell.load, row.cell.model), []).append(row)
    for title, rows in groups.items():
        table = _table(", ".join(title))
        for heading in ("backend", *headings(decision.alpha)):
            table.add_column(heading, overflow="fold")
        for row in rows:
            table.add_row(row.cell.variant(), *cells(row), style=STYLES[row.verdict])
        _print(table)
    for side, where, origin in (
        ("BASE", decision.base, decision.base_origin),
        ("NEW", decision.new, decision.new_origin),
    ):
        if origin:
            print(f"{side}: {named(where, origin)}")
    for sentence in (*notes_of(decision), *decision.missing, *decision.notes):
        print(sentence)
    print(f"verdict: {summary(decision)}")


def print_margins(held: Sequence[HeldMargin]) -> None:
    """What a machine can hold."""
    table = _table("margins that this machine can hold")
    for heading in ("cell", "metric", "repeats", "they differ by", "margin held", "wished"):
        table.add_column(heading, overflow="fold")
    table.add_column("repeats for it", overflow="fold")
    for one in held:
        needed = one.repeats_for_wish
        table.add_row(
            one.cell.label(),
            one.metric,
            str(one.repeats),
            f"{one.spread:.2%}",
            f"{one.margin:.1%}",
            f"{one.wished:.1%}",
            str(needed) if needed is not None else "over 200",
        )
    _print(table)


def print_rows(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table of texts."""
    table = _table(title)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    _print(table)


def headings(alpha: float) -> tuple[str, ...]:
    """Of the columns of `cells`."""
    return tuple(f"{1 - 2 * alpha:.0%}" if name == "90%" else name for name in HEADINGS)


def cells(row: GateRow) -> tuple[str, ...]:
    """A row as texts, in the order of `HEADINGS`."""
    interval = NONE
    if row.low is not None and row.high is not None:
        interval = f"{_amount(row, row.low)} to {_amount(row, row.high)}"
    unit = " (ms)" if row.unit == "s" else ""
    return (
        row.metric + unit,
        _value(row, row.base),
        _value(row, row.new),
        _amount(row, row.worse_by),
        interval,
        _amount(row, row.margin),
        _amount(row, row.detectable),
        row.verdict,
    )


def named(where: str, origin: str) -> str:
    """A run with what is known of where it comes from: ``base.parquet (c0ffee, 2026-11-27)``."""
    return f"{where} ({origin})" if origin else where


def notes_of(decision: Decision) -> list[str]:
    """What is to be said of single rows, a sentence each; once of rows that pass with the same."""
    found: dict[tuple[str, int], list[GateRow]] = {}
    for place, row in enumerate(decision.rows):
        if row.note:
            found.setdefault((row.note, 0 if row.verdict == "pass" else 1 + place), []).append(row)
    return [
        f"{rows[0].cell.label()}, {rows[0].metric}"
        f"{f', and {len(rows) - 1} more that pass' * (len(rows) > 1)}: {note}"
        for (note, _), rows in found.items()
    ]


def summary(decision: Decision) -> str:
    """The verdict with its counts: ``fail (1 of 8 fails, 7 pass)``."""
    counts = dict.fromkeys(STYLES, 0)
    for row in decision.rows:
        counts[row.verdict] += 1
    told = [f"{count} {name}" for name, count in counts.items() if count]
    told += [f"{len(decision.missing)} missing"] * bool(decision.missing)
    how = "paired by repeat" if decision.paired else "different machines: not paired by repeat"
    if decision.side_by_side:
        how = "run side by side, paired by repeat"
    return f"{decision.verdict} ({', '.join(told)}; {how})"


def _value(row: GateRow, value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value * 1e3:.3g}" if row.unit == "s" else f"{value:.4g}"


def _amount(row: GateRow, amount: float | None) -> str:
    if amount is None:
        return NONE
    if not row.relative:
        return f"{amount:+.3f}"
    return f"{amount:+.1%}" if amount < 10 else f"{amount + 1:.3g} times"


def _table(title: str) -> Table:
    from rich.table import Table

    return Table(title=title, title_justify="left", box=None, pad_edge=False)


def _print(table: Table) -> None:
    from rich.console import Console

    width = None if sys.stdout.isatty() else WIDTH
    Console(width=width, markup=False, emoji=False).print(table)
