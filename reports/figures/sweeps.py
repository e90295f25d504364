"""A quantity over the values of one numeric option, all else alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.cells import Cell
from reports.figures.axes import rule, tag, value_axis
from reports.svg import MUTED
from reports.variants import MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Curve(NamedTuple):
    """Cells that differ in one numeric option only, by its value, and the other options where there
    are several such curves."""

    label: str
    cells: Sequence[tuple[float, Cell]]


class Drawn(NamedTuple):
    """What is drawn over the option."""

    title: str
    metric: str
    label: str
    """Of its axis."""


def against_option(
    axes: Axes, curves: Sequence[Curve], quantity: Drawn, sign: str, axis: str
) -> None:
    """A line per curve over the option, which points call `sign` and its axis `axis`; one workload,
    one load."""
    metric = quantity.metric
    is_share = metric.endswith("_rate")
    scale = 100 if is_share else 1
    for place, curve in enumerate(curves):
        points = [(x, v, c) for x, c in curve.cells if (v := c.value(metric)) is not None]
        if not points:
            continue
        colour = points[0][2].variant.colour
        style = ("-", "--", ":", "-.")[place % 4]
        axes.plot(
            [x for x, *_ in points], [v * scale for _, v, _ in points], color=colour,
            linestyle=style, linewidth=1.4,
        )  # fmt: skip
        for x, value, cell in points:
            point = _point(axes, cell, metric, (x, value * scale), MARKERS[place % len(MARKERS)])
            unit = "%" if is_share else "×"
            tag(point, cell, f"{cell.workload}, {sign}={x:g}: {value * scale:.3g}{unit}")
        if curve.label:
            at = (points[-1][0], points[-1][1] * scale)
            text = axes.annotate(curve.label, at, xytext=(0, 5), textcoords="offset points")
            text.set(color=MUTED, fontsize=7, ha="right")
    value_axis(axes, "x", [])
    value_axis(axes, "y", [])
    if is_share:
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05 or 1.0)
    else:
        rule(axes, y=1.0)
    axes.set_xlabel(axis)
    axes.set_ylabel(quantity.label)


def _point(axes: Axes, cell: Cell, metric: str, at: tuple[float, float], marker: str) -> list[Any]:
    colour, alpha = cell.variant.colour, 1.0 if cell.holds(metric) else 0.35
    low, high = cell.low(metric), cell.high(metric)
    drawn: list[Any] = []
    if low is not None and high is not None and not metric.endswith("_rate"):
        drawn += axes.plot([at[0]] * 2, [low, high], color=colour, linewidth=1.1, alpha=0.6 * alpha)
    drawn += axes.plot(*at, marker, color=colour, markersize=4.5, alpha=alpha)
    return drawn
