"""What the terminal shows: progress while trials run, and tables. rich is imported when needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core import Trial

if TYPE_CHECKING:
    from rich.table import Table

    from harness.doctor import Finding
    from harness.sweep import Event

NONE = "–"


class Progress:
    """A live line for the trial under way. Silent but for failures when nobody watches."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._overall: Any = None

    def __enter__(self) -> Progress:
        """Start the live display when the output is a terminal."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=Console(stderr=True),
                transient=True,
            )
            self._overall = self._bar.add_task("trials", total=None, rate="")
            self._task = self._bar.add_task("", total=None, rate="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal clean."""
        if self._bar is not None:
            self._bar.stop()

    def show(self, event: Event) -> None:
        """Take in one event of the sweep."""
        if event.kind == "finished" and event.record is not None and event.record.status != "ok":
            self._tell(f"{event.label}: {event.record.status}: {event.record.error}")
        if self._bar is None:
            return
        done = event.index + (event.kind == "finished")
        self._bar.update(self._overall, total=event.total, completed=done)
        if event.kind == "progress" and event.progress is not None:
            self._bar.update(
                self._task,
                description=event.label,
                total=event.progress.total,
                completed=event.progress.done,
                rate=f"{event.tokens_per_s:,.0f} tok/s",
            )
        else:
            text = f"{event.label}: {event.phase}" if event.phase else event.label
            self._bar.reset(self._task, total=None, description=text, rate="")

    def _tell(self, line: str) -> None:
        if self._bar is None:
            print(line, file=sys.stderr)
        else:
            self._bar.console.print(line, markup=False, highlight=False)


def print_plan(trials: Sequence[Trial]) -> None:
    """What a run would do, a trial a line."""
    for trial in trials:
        options = json.dumps(dict(trial.options)) if trial.options else ""
        parts = (trial.backend, options, trial.workload.name, trial.load.label())
        print("  ".join(part for part in parts if part) + f"  repeat {trial.repeat}")
    print(f"{len(trials)} trials of {trials[0].requests} requests; nothing was run")


COLUMNS: Sequence[tuple[str, str, float]] = (
    ("tok/s", "output_tok_per_s", 1),
    ("TTFT p50 ms", "ttft_s_p50", 1e3),
    ("TTFT p99", "ttft_s_p99", 1e3),
    ("TPOT p50 ms", "tpot_s_p50", 1e3),
    ("TPOT p99", "tpot_s_p99", 1e3),
    ("e2e p50 ms", "e2e_s_p50", 1e3),
    ("goodput req/s", "goodput_req_per_s", 1),
)
"""Heading, metric and factor of the plain number columns of the result table."""
QUALITY = ("exact_match", "pass_at_1", "rouge_l_to_label")


def print_cells(cells: Sequence[Mapping[str, Any]]) -> None:
    """The result table, one row per cell with its repeats pooled."""
    table = _table()
    for heading in ("backend", "workload", "load"):
        table.add_column(heading, overflow="fold")
    for heading in ("speed-up", "same", *(heading for heading, _, _ in COLUMNS), "quality"):
        table.add_column(heading, justify="right")
    table.add_column("valid")
    for cell in cells:
        table.add_row(*_cell_row(cell))
    _print(table)
    reasons = dict.fromkeys(reason for cell in cells for reason in cell["invalid_reasons"])
    for reason in reasons:
        print(f"not valid: {reason}")


def _cell_row(cell: Mapping[str, Any]) -> list[str]:
    options = ", ".join(f"{key}={value}" for key, value in cell["options"].items())
    backend = f"{cell['backend']} ({options})" if options else cell["backend"]
    quality = next((cell[name] for name in QUALITY if cell[name] is not None), None)
    numbers = [_number(cell[metric], factor) for _, metric, factor in COLUMNS]
    return [
        f"{backend}\n{cell['provenance'] or NONE}",
        cell["workload"],
        cell["load"],
        _speedup(cell),
        _number(cell["consistency_ratio"], 1),
        *numbers,
        _number(quality, 1),
        _validity(cell),
    ]


def _speedup(cell: Mapping[str, Any]) -> str:
    if cell["is_reference"]:
        return "reference"
    if cell["speedup"] is None:
        return NONE
    if cell["speedup_low"] is None:
        return f"{cell['speedup']:.2f}"
    return f"{cell['speedup']:.2f} [{cell['speedup_low']:.2f}, {cell['speedup_high']:.2f}]"


def _validity(cell: Mapping[str, Any]) -> str:
    failed = {name: count for name, count in cell["statuses"].items() if name != "ok"}
    if failed:
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in failed.items())
    slugs = dict.fromkeys(reason.split(":")[0] for reason in cell["invalid_reasons"])
    return "yes" if cell["valid"] else ", ".join(slugs)


def _number(value: float | None, factor: float) -> str:
    if value is None:
        return NONE
    scaled = value * factor
    return f"{scaled:,.0f}" if abs(scaled) >= 1000 else f"{scaled:.3g}"


def print_bias(rows: Iterable[Mapping[str, Any]]) -> None:
    """The selftest's table: truth, measured, bias, and whether that is within the bound."""
    table = _table("load", "metric", "truth", "measured", "bias", "bound", "within")
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("load", "metric", "truth", "measured")))
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
            table.add_row(row["name"], "", "", "", "", end_section=not row["options"])
            for key, option in row["options"].items():
                default = json.dumps(option["default"])
                table.add_row("", key, option["type"], default, option["help"])
    else:
        table = _table(*rows[0])
        for row in rows:
            table.add_row(*(_text(value) for value in row.values()))
    _print(table)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return NONE if value is None else str(value)


def _table(*headings: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(*headings, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)


def _print(table: Table) -> None:
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    # a pipe has no width to fold to
    console.print(table, width=None if console.is_terminal else 240)
