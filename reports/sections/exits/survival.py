"""Survival at the ramps, window by window: forecast against measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from reports.cells import Overview
from reports.collect import Samples
from reports.figures.axes import tag, value_axis
from reports.numbers import counted, percent, significant
from reports.panels import Panel, Place, folded, panels
from reports.sections import Section
from reports.sections.exits.forecasts import RampForecast, WindowErrors, ramp_forecasts
from reports.svg import SURFACE
from reports.tables import BodyRow, Column, Group, build, judged_scope, places
from reports.words.doubts.doubt import against
from reports.words.findings import NONE_HOLDS, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NOTE = (
    "Of the tokens (labels) told in a window, the share that went on behind a ramp: this is what a "
    "plan of stages is made for. What was forecast when a window began follows from those before "
    "it alone: {name} from {least} windows on, the last value until then. It was reckoned "
    "afterwards, and had no part in the run. Counting few tokens errs by itself: in the long run "
    "no forecast is nearer than that. One repeat of each cell; of many ramps the three where most "
    "leave. 'decodebench report DIR --window-s S' counts in windows of another length. "
    "Figures have the ramp where most leave: measured with full marks, forecast hollow and dashed."
)


def section(seen: Overview, samples: Samples) -> Section | None:
    """A row per cell and ramp, and a panel per load and workload, of pipelines; of other early
    exits where there is none. None where nobody tells how many layers tokens ran, or for too short
    a time."""
    cells = [cell for cell in seen.cells if cell in samples.survival]
    # forecasts take their time, and the same exits in one process say the same
    cells = [cell for cell in cells if cell.metrics.get("by_stage")] or cells
    found = {
        cell: ramp_forecasts(cell, samples.survival[cell], samples.next_window) for cell in cells
    }
    if not found:
        return None
    rows = [one for own in found.values() for one in own]

    def curves(place: Place) -> Iterator[Panel]:
        shown = [max(found[c], key=lambda one: one.leave) for c in place.cells if c in found]
        if shown:
            title = f"Survival at the ramp where most leave, by window{place.words}"
            yield Panel(partial(_paint, shown=shown), title)

    return Section(
        "survival",
        "Survival at the ramps, forecast and measured",
        _NOTE.format(least=samples.next_window.least, name=samples.next_window.name),
        folded(panels(seen, curves, list(found))),
        table=build(COLUMNS, rows, _row),
        words=list(_sentences(rows)),
        short="Survival",
        finding=_finding(rows),
    )


def _finding(rows: Sequence[RampForecast]) -> str:
    """How much goes on, and how much was counted, of what holds."""
    rows = [one for one in rows if one.cell.stands_alone]
    if not rows:
        return NONE_HOLDS
    windows = {one.cell: len(one.alive) for one in rows}
    workloads = dict.fromkeys(cell.workload for cell in windows)
    lengths = span((one.series.window_s for one in rows), significant)
    return (
        f"{span((one.mean for one in rows), percent)}% of what reaches a ramp goes on: "
        f"{counted(sum(windows.values()), 'window')} of {lengths} s, on "
        f"{', '.join(workloads)}."
    )


def _paint(axes: Axes, shown: Sequence[RampForecast]) -> None:
    for one in shown:
        variant, middle = one.cell.variant, one.series.begins_s + one.series.window_s / 2
        where = f"behind layer {one.layer}"
        doubt = against(one.cell, "output_tok_per_s")
        where, alpha = (f"{where}, {doubt}", 0.35) if doubt else (where, 1.0)
        measured = axes.plot(
            middle, 100 * one.alive, color=variant.colour, linewidth=1.3, marker=variant.marker,
            markersize=4, alpha=alpha,
        )  # fmt: skip
        tag(measured, one.cell, f"{where}, measured: {percent(one.mean)}% in all")
        if not np.isnan(one.said).all():
            said = axes.plot(
                middle, 100 * one.said, color=variant.colour, linewidth=1.0, linestyle=(0, (3, 2)),
                marker=variant.marker, markersize=4, markerfacecolor=SURFACE, alpha=alpha,
            )  # fmt: skip
            tag(said, one.cell, f"{where}, forecast")
    value_axis(axes, "x", [])
    most = max(float(np.nanmax([*one.alive, *one.said])) for one in shown)
    axes.set_xlim(left=0)
    axes.set_ylim(0, max(5.0, min(106.0, 115 * most)))
    axes.set_xlabel("seconds after the first request")
    axes.set_ylabel("% that go on")


def _sentences(rows: Sequence[RampForecast]) -> Iterator[str]:
    """For each load (and model) and backend how far off forecasts were, over its workloads; nothing
    of cells that are not valid."""
    groups: dict[tuple[str, str], list[tuple[RampForecast, WindowErrors]]] = {}
    for one in rows:
        if one.cell.stands_alone:
            key = one.cell.condition, one.cell.variant.label
            groups.setdefault(key, []).append((one, one.errors()))
    for (condition, label), own in groups.items():
        errors = [
            (found.windows, found.forecast, found.last_value, found.by_chance)
            for _, found in own
            if found.forecast is not None
        ]
        if not errors:
            continue
        windows, *columns = zip(*errors, strict=True)
        said, last, chance = (
            _points(float(np.average(values, weights=windows))) for values in columns
        )
        yield (
            f"Under {condition} forecasts of {label}'s survival were off by {said} points on "
            f"average, the last value by {last}; counting alone makes {chance}. {_rests_on(own)}"
        )


def _rests_on(own: Sequence[tuple[RampForecast, WindowErrors]]) -> str:
    """Of which workloads anything was forecast, and in how many windows of each."""
    every = dict.fromkeys(one.cell.workload for one, _ in own)
    windows = {one.cell.workload: found.windows for one, found in own if found.forecast is not None}
    told = ", ".join(
        f"{workload} ({counted(count, 'window')} that had enough before them)"
        for workload, count in windows.items()
    )
    rest = len(every) - len(windows)
    short = f"; the other {counted(rest, 'workload')} had too few windows" if rest else ""
    return f"That rests on {told}{short}."


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def _row(one: RampForecast) -> BodyRow:
    row = judged_scope(one.cell)
    return row._replace(condition=f"{row.condition}, ramp {one.layer}")


def _error(title: str, help: str, name: str) -> Column[RampForecast]:
    def value(one: RampForecast) -> float | None:
        found: float | None = getattr(one.errors(), name)
        return found

    return Column(title, value, _points, "points", help, _OFF, why="too few windows before any")


_WINDOWS, _SHARE, _OFF = Group("Windows"), Group("Share that goes on"), Group("Off by, on average")
COLUMNS: tuple[Column[RampForecast], ...] = (
    *places(lambda one: one.cell),
    Column("Ramp", lambda one: f"behind {one.layer}", css="", help="so many layers",
           sort=lambda one: str(one.layer)),
    Column("number", lambda one: float(len(one.alive)), "{:.0f}".format, group=_WINDOWS),
    Column("length", lambda one: one.series.window_s, significant, "s", group=_WINDOWS),
    Column("tokens", lambda one: float(one.series.counted.mean()), significant, "",
           "told in a window, on average; labels of a classifier", _WINDOWS),
    Column("mean", lambda one: one.mean, percent, "%", "of all that were counted", _SHARE),
    Column("least", lambda one: float(one.alive.min()), percent, "%", "of any window", _SHARE),
    Column("most", lambda one: float(one.alive.max()), percent, "%", "of any window", _SHARE),
    _error("forecast", "mean absolute difference from what was measured", "forecast"),
    _error("last value", "the same, of the window before taken for the forecast", "last_value"),
    _error("counting", "what so few tokens make by chance, if each leaves by itself", "by_chance"),
)  # fmt: skip
"""How much goes on behind each ramp, and how far off it was foreseen."""
