"""What becomes of a speed-up as the model grows, and what the steps are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.cells import Cell
from reports.figures.axes import LabelledRows, marked_line, rule, tag, value_axis
from reports.numbers import milliseconds, percent, ratio
from reports.svg import INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class SizedSpeedup(NamedTuple):
    """A speed-up at one size of the model."""

    cell: Cell
    size_bytes: int
    """Weights that a pass reads."""
    speedup: float
    holds: bool
    bound: bool
    """Whether one of its sides is overhead-bound."""


class StepParts(NamedTuple):
    """Shares of a step. They add up to 1; the last two are one where the engine does not tell how
    long its passes take."""

    floor: float
    passes: float
    """Of passes, beyond the floor."""
    engine: float | None
    """None: among `passes`."""


SHADES = (1.0, 0.5, 0.18)
"""Of a bar's floor, passes and engine."""
_FAINT = 0.35
"""Of what is not valid."""


def against_size(axes: Axes, lines: Sequence[Sequence[SizedSpeedup]]) -> None:
    """A line per variant and machine over the bytes of weights; one workload, one load. Hollow:
    overhead-bound or not valid. Dashed: where neither side is faster."""
    points = sorted({point.size_bytes / 1e9 for line in lines for point in line})
    for line in lines:
        _line(axes, sorted(line, key=lambda point: point.size_bytes))
    rule(axes, y=1.0)
    value_axis(axes, "x", points, log_from=3.0)
    value_axis(axes, "y", [point.speedup for line in lines for point in line])
    axes.set_ylim(bottom=min(0.9, *(point.speedup * 0.9 for line in lines for point in line)))
    axes.set_xlabel("weights, GB")
    axes.set_ylabel("speed-up")


def _line(axes: Axes, points: Sequence[SizedSpeedup]) -> None:
    x, y = [point.size_bytes / 1e9 for point in points], [point.speedup for point in points]
    doubtful = [place for place, one in enumerate(points) if one.bound or not one.holds]
    drawn = marked_line(axes, points[0].cell.variant, x, y, doubtful, 4.5)
    told = [f"{ratio(point.speedup)}× on {point.cell.model}" for point in points]
    tag(drawn, points[0].cell, ", ".join(told))


def step_parts(axes: Axes, cells: Sequence[tuple[Cell, StepParts]]) -> None:
    """A bar per cell, grouped by workload: dark the floor, lighter the rest of the passes,
    lightest the engine around them; fainter all of what is not valid; one load."""
    rows = LabelledRows(axes)
    for cell, parts in cells:
        y, left = rows.place(cell), 0.0
        faded, ink, doubt = (1.0, INK, "") if cell.stands_alone else (_FAINT, MUTED, ", not valid")
        drawn: list[Any] = []
        for share, shade in zip(parts, SHADES, strict=True):
            if share:
                bar = axes.barh(
                    y, share, left=left, height=0.68, color=cell.variant.colour, linewidth=0,
                    alpha=shade * faded,
                )  # fmt: skip
                drawn += bar.patches
                left += share
        step_s = cell.value("step_s") or 0.0
        note = f"{milliseconds(step_s)} ms, floor {percent(parts.floor)}%"
        text = axes.annotate(note, (1, y), xytext=(4, 0), textcoords="offset points")
        text.set(color=ink, va="center", fontsize=7.5)
        tag([*drawn, text], cell, f"{cell.workload}, {note}{doubt}")
    rows.finish()
    axes.set_xlim(0, 2.35)  # the rest is what notes take
    axes.set_xticks([0, 0.5, 1], ["0", "50", "100%"])
    axes.set_xlabel("share of a step")
