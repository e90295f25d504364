"""What a system does from idle to saturation: a curve over the load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from reports.figures.axes import short_number, tag, value_axis
from reports.numbers import significant
from reports.sections.searched import SweptCurve, SweptPoint
from reports.svg import SURFACE
from reports.words.ranking.label_rates import are_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class CurveAxis(NamedTuple):
    """A quantity of a point, on one of a panel's axes."""

    metric: str
    """Empty: the rate."""
    label: str
    unit: str
    """At the points."""
    scale: float = 1.0

    def of(self, point: SweptPoint) -> float | None:
        """Its value in the axis's unit."""
        value = point.values.get(self.metric) if self.metric else point.rate
        return None if value is None else value * self.scale


RATE = CurveAxis("", "requests per second", "/s")
TOKENS = CurveAxis("output_tok_per_s", "output tokens/s", " tokens/s")
LABELS = CurveAxis("request_per_s", "labels/s", " labels/s")
FIRST = CurveAxis("ttft_s_p50", "time to first token (ms)", " ms", 1e3)
EACH = CurveAxis("tpot_s_p50", "time per token (ms)", " ms", 1e3)
WHOLE = CurveAxis("e2e_s_p50", "whole answer (ms)", " ms", 1e3)


def throughput(curve: SweptCurve) -> CurveAxis:
    """What a system hands out."""
    return LABELS if are_labels(curve.cell) else TOKENS


def over_load(axes: Axes, curves: Sequence[SweptCurve], x: CurveAxis, y: CurveAxis) -> None:
    """A line per system in the order of its loads; hollow where it did not keep up."""
    drawn_x, drawn_y = [], []
    for curve in curves:
        points = [
            (point, a, b)
            for point in curve.points
            if (a := x.of(point)) is not None and (b := y.of(point)) is not None
        ]
        variant = curve.cell.variant
        line = axes.plot(
            [a for _, a, _ in points], [b for *_, b in points], color=variant.colour,
            linestyle=variant.line, linewidth=1.4,
        )  # fmt: skip
        tag(line, curve.cell)
        for point, a, b in points:
            dot = axes.plot(
                a, b, variant.marker, color=variant.colour, markersize=4, clip_on=False,
                markerfacecolor=variant.colour if point.kept_up else SURFACE,
            )  # fmt: skip
            said = f"{short_number(b)}{y.unit} at {significant(a)}{x.unit}"
            tag(dot, curve.cell, said if point.kept_up else f"{said}, saturated")
        drawn_x += [a for _, a, _ in points]
        drawn_y += [b for *_, b in points]
    value_axis(axes, "x", drawn_x)
    value_axis(axes, "y", drawn_y)
    axes.set_xlabel(x.label)
    axes.set_ylabel(y.label)
