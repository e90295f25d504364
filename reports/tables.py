"""The table of results: a row per backend, options, workload and load; a cell says what it is
worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reports.cells import Cell, Overview
from reports.numbers import counted, interval, milliseconds, percent, ratio, significant
from reports.text import clipped, visible
from reports.variants import Variant
from reports.words.definitions import meaning
from results import registry

QUALITY = {metric.name: metric.label for metric in registry.scores()}
"""Task scores that may stand in the quality column, with the name shown beside the number."""


@dataclass(frozen=True, slots=True)
class Column:
    """A numeric column: the metric, how a value is shown, and whether its interval is too."""

    title: str
    metric: str
    form: Callable[[float], str]
    unit: str = ""
    group: str = ""
    help: str = ""
    has_interval: bool = False


def _number_column(
    name: str, form: Callable[[float], str], unit: str = "", *, has_interval: bool = False
) -> Column:
    metric = registry.find(name)
    return Column(metric.label, name, form, unit or metric.unit, "", meaning(metric), has_interval)


def _latency(name: str) -> tuple[Column, ...]:
    metric = registry.find(name)
    return tuple(
        Column(p, f"{name}_{p}", milliseconds, "ms", metric.label, meaning(metric))
        for p in ("p50", "p95", "p99")
    )


COLUMNS = (
    _number_column("speedup", ratio, "×", has_interval=True),
    _number_column("consistency_ratio", percent, "%"),
    _number_column("output_tok_per_s", significant, has_interval=True),
    *_latency("ttft_s"),
    *_latency("tpot_s"),
    *_latency("e2e_s"),
    _number_column("goodput_req_per_s", significant),
)

_FIRST = ("Backend", "Workload", "Load", "Valid")


@dataclass(frozen=True, slots=True)
class HeaderCell:
    """A header cell. `column` is the place in the body that sorting by it reads."""

    title: str
    unit: str = ""
    css: str = ""
    help: str = ""
    span: int = 1
    rows: int = 1
    column: int | None = None


@dataclass(frozen=True, slots=True)
class BodyCell:
    """A body cell: what it shows, what it sorts by, and why it shows nothing."""

    text: str = ""
    sort: str = ""
    css: str = "num"
    small: str = ""
    undefined: str = ""


@dataclass(frozen=True, slots=True)
class BodyRow:
    """A body row with what the page's filters look at."""

    variant: Variant
    workload: str | None
    """None where the row is of several."""
    load: str
    validity: str
    css: str
    cells: tuple[BodyCell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Two header lines and the body."""

    groups: tuple[HeaderCell, ...]
    subheads: tuple[HeaderCell, ...]
    rows: tuple[BodyRow, ...] = field(default=())


def results_table(cells: Sequence[Cell], why_no_speedup: str) -> Table:
    """The table of results over `cells`, which come grouped by workload and load."""
    groups, subheads = _header()
    rows = []
    before: tuple[str, str] | None = None
    for cell in cells:
        scope = (cell.workload, cell.load)
        css = "first-of-group" if scope != before else ""
        before = scope
        rows.append(_row(cell, css, why_no_speedup))
    return Table(groups, subheads, tuple(rows))


def _header() -> tuple[tuple[HeaderCell, ...], tuple[HeaderCell, ...]]:
    groups = [HeaderCell(t, rows=2, column=i) for i, t in enumerate(_FIRST)]
    subheads: list[HeaderCell] = []
    for place, column in enumerate(COLUMNS, start=len(_FIRST)):
        if not column.group:
            groups.append(
                HeaderCell(column.title, column.unit, "num", column.help, rows=2, column=place)
            )
            continue
        first = column.title == "p50"
        css = "num begin" if first else "num"
        subheads.append(HeaderCell(column.title, css=css, column=place))
        if first:
            groups.append(HeaderCell(column.group, column.unit, "group begin", column.help, span=3))
    place = len(_FIRST) + len(COLUMNS)
    groups.append(HeaderCell("Quality", css="num begin", rows=2, column=place, help="task score"))
    return tuple(groups), tuple(subheads)


def _row(cell: Cell, css: str, why_no_speedup: str) -> BodyRow:
    numbers = tuple(_number(cell, column, why_no_speedup) for column in COLUMNS)
    names = (
        BodyCell(cell.workload, cell.workload, css=""),
        BodyCell(cell.load, str(cell.order), css="", small=_realised(cell)),
    )
    if not cell.stands_alone:
        css = f"{css} invalid".strip()
    validity = "valid" if cell.valid else "not valid" if cell.is_measured else "failed"
    items = (*names, _validity(cell, validity), *numbers, quality(cell))
    return BodyRow(cell.variant, cell.workload, cell.load, validity, css, items)


def _number(cell: Cell, column: Column, why_no_speedup: str) -> BodyCell:
    css = "num begin" if column.group and column.title == "p50" else "num"
    css += " struck" * (cell.stands_alone and not cell.holds(column.metric))
    value = cell.value(column.metric)
    if cell.variant.is_reference and column.metric == "speedup":
        return BodyCell("1", "1", css, small="reference")
    if value is None:
        return BodyCell(css=css, undefined=_why_undefined(cell, column, why_no_speedup))
    small = ""
    low, high = cell.low(column.metric), cell.high(column.metric)
    if column.has_interval and low is not None and high is not None:
        small = interval(low, high, column.form)
    if not cell.has_samples_for(column.title):
        small = f"of {cell.samples:,} only"
    floor = cell.value("noise_floor")
    if column.metric == "consistency_ratio" and floor is not None:
        small = "with itself" if cell.variant.is_reference else f"floor {percent(floor)}"
    return BodyCell(column.form(value), repr(value), css, small)


def _why_undefined(cell: Cell, column: Column, why_no_speedup: str) -> str:
    if not cell.is_measured:
        return "every trial of this cell failed"
    if column.metric in {"speedup", "consistency_ratio"}:
        if cell.variant.is_reference:
            return "one repeat only, so the reference cannot be compared with itself"
        return why_no_speedup or "no request in common with the reference"
    if column.metric.startswith("tpot"):
        return "undefined: every request's tokens came in a single commit"
    if column.metric.startswith("goodput"):
        return "no objective (slo) was set"
    return "undefined: no request finished"


def _realised(cell: Cell) -> str:
    """The rate that the drawn arrivals came to, beside the one asked for."""
    rate = cell.value("realised_rate_per_s")
    return "" if rate is None else f"realised {significant(rate)}/s"


def quality(cell: Cell) -> BodyCell:
    """The task score of the workload."""
    for metric, name in QUALITY.items():
        value = cell.value(metric)
        if value is not None:
            flexible = cell.value("exact_match_flexible") if metric == "exact_match" else None
            beside = f", {significant(flexible)} flexible" if flexible is not None else ""
            return BodyCell(significant(value), repr(value), "num begin", small=name + beside)
    return BodyCell(css="num begin", undefined="no task score was stored")


def _validity(cell: Cell, validity: str) -> BodyCell:
    count = counted(cell.trials, "trial")
    if validity == "valid":
        return BodyCell("✓ valid", "0", "mark good", small=count)
    lost = f"{cell.trials - cell.valid_trials} of {count}"
    part = "✕ in part" if cell.stands_alone else "✕ not valid"
    sort, text = ("2", "✕ failed") if validity == "failed" else ("1", part)
    return BodyCell(text, sort, "mark bad", small=lost)


@dataclass(frozen=True, slots=True)
class Marked:
    """One reason against some trials of a cell."""

    variant: Variant
    workload: str
    load: str
    trials: str
    reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Trials of one cell that ended badly in the same way."""

    variant: Variant
    workload: str
    load: str
    repeats: str
    status: str
    error: str


def validity(cells: Sequence[Cell]) -> list[Marked]:
    """Every reason against a cell, failures apart: those have their own table."""
    return [
        Marked(
            cell.variant,
            cell.workload,
            cell.load,
            f"{count} of {cell.trials}",
            visible(clipped(text, 300)),
        )
        for cell in cells
        for count, text in cell.reasons.values()
        if cell.is_measured
    ]


def failures(seen: Overview) -> list[Failure]:
    """Every trial whose status is not "ok", with its error; equal ones of a cell in one row."""
    cells = seen.by_key()
    repeats: dict[tuple[Cell, str, str], list[str]] = {}
    for row in seen.rows:
        if row["status"] != "ok":
            error = visible(clipped(row["error"] or "no error was recorded", 1000))
            same = (cells[row["key"]], row["status"].replace("_", " "), error)
            repeats.setdefault(same, []).append(str(row["repeat"]))
    return [
        Failure(cell.variant, cell.workload, cell.load, ", ".join(numbers), status, error)
        for (cell, status, error), numbers in repeats.items()
    ]
