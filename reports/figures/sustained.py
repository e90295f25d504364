"""The share of requests that meet the objective, over the rate that they are asked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reports.cells import Cell
from reports.figures.axes import rule, tag, value_axis
from reports.numbers import interval, percent, significant
from results.goodput.stored import StoredScale, StoredSearch

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def share_over_rate(
    axes: Axes, searches: Sequence[tuple[Cell, StoredSearch]], share: float
) -> None:
    """A curve per system, a point with its interval per probe; the rate that was found is a
    vertical line in a band, its interval. Dashed across: the share that is wanted."""
    for cell, found in searches:
        variant = cell.variant
        probes = sorted(found.probes, key=lambda probe: probe.came_about)
        line = axes.plot(
            [p.came_about for p in probes], [p.share * 100 for p in probes],
            color=variant.colour, linestyle=variant.line, linewidth=1.2, alpha=0.6,
        )  # fmt: skip
        tag(line, cell)
        for p in probes:
            drawn = list(
                axes.plot([p.came_about] * 2, [p.low * 100, p.high * 100], color=variant.colour,
                          linewidth=1.0, alpha=0.6)
            )  # fmt: skip
            drawn += axes.plot(
                p.came_about, p.share * 100, variant.marker, color=variant.colour, markersize=4
            )
            ends = interval(p.low, p.high, percent)
            tag(drawn, cell, f"{percent(p.share)}% {ends} at {significant(p.came_about)}/s")
        if found.rate is not None and found.low is not None and found.high is not None:
            band = axes.axvspan(
                found.low, found.high, color=variant.colour, alpha=0.12, linewidth=0
            )
            mark = axes.axvline(
                found.rate, color=variant.colour, linestyle=variant.line, linewidth=1.4
            )
            ends = interval(found.low, found.high, significant)
            tag([band, mark], cell, f"{significant(found.rate)}/s {ends}")
    rule(axes, y=share * 100)
    value_axis(axes, "x", [p.came_about for _, found in searches for p in found.probes])
    axes.set_ylim(0, 104)
    axes.set_xlabel("offered rate (requests/s)")
    axes.set_ylabel("within the objective (%)")


def rate_over_scale(axes: Axes, searches: Sequence[tuple[Cell, StoredSearch]]) -> None:
    """A curve per system, a point with its interval for each objective at which a rate was found;
    1 is the objective of the run."""
    drawn_scales = [1.0]
    for cell, found in searches:
        variant = cell.variant
        own = StoredScale(1.0, found.rate, found.low, found.high)
        points = sorted((own, *found.scales), key=lambda point: point.scale)
        known = [(p, p.rate) for p in points if p.rate is not None]
        drawn_scales += [p.scale for p in points]
        line = axes.plot(
            [p.scale for p, _ in known], [rate for _, rate in known],
            color=variant.colour, linestyle=variant.line, linewidth=1.2, alpha=0.6,
        )  # fmt: skip
        tag(line, cell)
        for p, rate in known:
            low, high = p.low or rate, p.high or rate
            drawn = list(axes.plot([p.scale] * 2, [low, high], color=variant.colour, linewidth=1.0))
            drawn += axes.plot(p.scale, rate, variant.marker, color=variant.colour, markersize=4)
            ends = interval(low, high, significant)
            tag(drawn, cell, f"{significant(rate)}/s {ends} at {significant(p.scale)} times")
    value_axis(axes, "x", drawn_scales)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("objective, times so much")
    axes.set_ylabel("sustained rate (requests/s)")
