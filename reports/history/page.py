"""Writes the page: the changes in a table, and each series drawn, with those that changed first."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from harness.core.files import write_atomic
from reports.figures.axes import digits_apart, value_axis
from reports.history.words import amount, change_cells, lead, remarks, run_name, series_name, step
from reports.page import CSS, FILE_NAME, template
from reports.panels import Panel, draw, drawing
from reports.svg import MUTED, SURFACE, series_colour
from results.history.copies import RunMark
from results.history.series import FoundChange, History, MetricSeries

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DRAWN = 200
_COLOURS = {"better": series_colour(2), "worse": series_colour(1), "changed": series_colour(3)}


class LinkedCell(NamedTuple):
    """A cell of the page's tables: texts, each with its address, empty where there is none."""

    parts: Sequence[tuple[str, str]]
    css: str = ""


class DrawnSeries(NamedTuple):
    """A figure of the page."""

    anchor: str
    caption: str
    note: str
    svg: Markup


def write_history(found: History, target: Path) -> None:
    """Write the page, which needs nothing else. Raises `OSError`."""
    with drawing():
        figures = list(_figures(found))
    context: dict[str, Any] = {
        "lead": lead(found),
        "remarks": list(remarks(found)),
        "change_heads": ("Metric", "Cell", "Before", "After", "Step", "Between", "Versions"),
        "changes": [_change(one, target) for one in found.changes],
        "figures": figures,
        "left_out": max(0, len(found.series) - MOST_DRAWN),
        "run_heads": ("Run", "Started", "Folder"),
        "runs": [_run(mark, target) for mark in reversed(found.runs)],
        "css": Markup(CSS.read_text(encoding="utf-8")),
    }
    write_atomic(target, template("history.html.j2").render(context).encode())


def anchor(one: MetricSeries) -> str:
    """A series' name in addresses, the same in every history that has it."""
    said = f"{one.key} {one.cell} {one.machine}"
    return f"{one.key}-{hashlib.sha256(said.encode()).hexdigest()[:10]}"


def _change(one: FoundChange, target: Path) -> Sequence[LinkedCell]:
    """A change as a row: its figure and the reports on both sides of it linked."""
    metric, cell, before, after, size, _, versions = change_cells(one)
    first, second = (
        (run_name(point.mark), _href(point.mark.folder, target)) for point in one.between
    )
    return (
        LinkedCell([(metric, f"#{anchor(one.series)}")]),
        LinkedCell([(cell, "")]),
        LinkedCell([(before, "")], "num"),
        LinkedCell([(after, "")], "num"),
        LinkedCell([(size, "")], "step"),
        LinkedCell([first, (" .. ", ""), second]),
        LinkedCell([(versions, "")]),
    )


def _run(mark: RunMark, target: Path) -> Sequence[LinkedCell]:
    """A run as a row, its report linked."""
    return (
        LinkedCell([(run_name(mark), _href(mark.folder, target))]),
        LinkedCell([(mark.started, "")]),
        LinkedCell([(mark.folder.name, "")]),
    )


def _href(folder: Path, target: Path) -> str:
    """The way from the page to a run's report; empty where there is none."""
    report = folder / FILE_NAME
    if not report.is_file():
        return ""
    return quote(os.path.relpath(report.resolve(), target.resolve().parent))


def _figures(found: History) -> Iterator[DrawnSeries]:
    by_series: dict[int, list[FoundChange]] = {}
    for change in found.changes:
        by_series.setdefault(id(change.series), []).append(change)
    ordered = sorted(found.series, key=lambda one: (id(one) not in by_series, one.key, one.cell))
    places = {run.folder: number for number, run in enumerate(found.runs)}
    for number, one in enumerate(ordered[:MOST_DRAWN]):
        changes = sorted(by_series.get(id(one), ()), key=lambda change: change.point.place)
        xs = [places[point.mark.folder] for point in one.points]
        hollow = [places[point.mark.folder] for point in one.doubted]
        title = f"{one.key} over runs: {series_name(one)}"
        paint = partial(_paint, one=one, xs=xs, hollow=hollow, changes=changes)
        note = "; ".join(
            f"{step(change)} between "
            + " and ".join(run_name(point.mark) for point in change.between)
            for change in changes
        )
        svg = draw(Panel(paint, title), f"h{number}-")
        yield DrawnSeries(anchor(one), f"{one.key}, {series_name(one)}", note, svg)


def _paint(
    axes: Axes,
    one: MetricSeries,
    xs: Sequence[int],
    hollow: Sequence[int],
    changes: Sequence[FoundChange],
) -> None:
    scale = 1000.0 if one.metric.unit == "s" else 1.0
    values = [scale * point.value for point in one.points]
    doubted = [scale * point.value for point in one.doubted]
    starts = [0, *(change.point.place for change in changes), len(xs)]
    means = [change.point.before for change in changes] + [
        changes[-1].point.after if changes else sum(values) / scale / max(len(values), 1)
    ]
    for start, end, mean in zip(starts, starts[1:], means, strict=False):
        if end > start:
            ends = [xs[start] - 0.4, xs[end - 1] + 0.4]
            axes.plot(ends, [scale * mean] * 2, color=MUTED, linewidth=1.2)
    for change in changes:
        before, after = xs[change.point.place - 1], xs[change.point.place]
        axes.axvline((before + after) / 2, color=_COLOURS[change.verdict], linewidth=1.4)
    every = values + doubted
    low, high = min(every), max(every)
    room = 0.25 * (high - low) or 0.1 * abs(high) or 1.0
    value_axis(axes, "y", every, log_from=float("inf"))
    axes.set_ylim(low - room, high + room)
    digits = digits_apart(values, axes.get_yticks())
    for x, value, point in zip(xs, values, one.points, strict=True):
        [dot] = axes.plot([x], [value], "o", markersize=4, color=series_colour(0))
        dot.set_gid(f"series=all={run_name(point.mark)}: {amount(one, point.value, digits)}")
    axes.plot(hollow, doubted, "o", markersize=4, color=series_colour(0), markerfacecolor=SURFACE)
    axes.set_xticks([])
    axes.set_xlabel("runs, oldest first")
    axes.set_ylabel("ms" if one.metric.unit == "s" else one.metric.unit)
