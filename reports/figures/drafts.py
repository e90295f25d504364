"""How many drafts stand: the share of verifications in which all of the first I do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from reports.cells import Cell
from reports.figures.axes import marked_line, tag
from reports.figures.exits import believed
from reports.numbers import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST_JUDGED = 50
"""A point whose last draft was judged less often is hollow: it may be far from the truth."""


class Standing(NamedTuple):
    """A point of the curve."""

    position: int
    """So many drafts; 0 where there are none yet."""
    share: float
    """Of verifications with at least as many drafts, those in which all of them stand."""
    judged: float
    """How often the last of them was judged; infinite at position 0, which is no estimate."""


def curve(cell: Cell) -> list[Standing]:
    """From 1 at position 0 the product of accepted / judged; empty where positions are not told.

    A draft is judged only when all before it stood, so that each quotient is the share that goes on
    and their product the share that has come so far. Up to the last position that was judged.
    """
    counts: Mapping[str, Mapping[str, float]] = cell.metrics.get("drafts_by_position") or {}
    points = [Standing(0, 1.0, float("inf"))]
    while (here := counts.get(str(len(points)))) and here["judged"]:
        share = points[-1].share * here["accepted"] / here["judged"]
        points.append(Standing(len(points), share, here["judged"]))
    return points if len(points) > 1 else []


def against_position(axes: Axes, cells: Sequence[Cell]) -> None:
    """A line per cell over the position of the draft; one workload, one load. Each has a curve."""
    last = 1
    for cell in cells:
        points = curve(cell)
        last = max(last, points[-1].position)
        _line(axes, cell, points)
    # of 15 drafts every second one has a number
    ticks = range(0, last + 1, 1 + last // 10)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlim(-0.03 * last, last * 1.05)
    axes.set_yticks([0, 25, 50, 75, 100])
    axes.set_ylim(0, 106)
    axes.set_xlabel("first drafts")
    axes.set_ylabel("% where all stand")


def _line(axes: Axes, cell: Cell, points: Sequence[Standing]) -> None:
    alpha = 1.0 if believed(cell) else 0.35
    x, y = [p.position for p in points], [100 * p.share for p in points]
    few = [place for place, p in enumerate(points) if p.judged < FEWEST_JUDGED]
    drawn = marked_line(axes, cell.variant, x, y, few, 4.5, alpha)
    told = [
        f"first {p.position} {percent(p.share)}% ({p.judged:,.0f} judged)"
        for p in points
        if p.position
    ]
    tag(drawn, cell, f"{cell.workload}, {cell.load}: {', '.join(told)}")
