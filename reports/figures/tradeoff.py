"""Consistency against speed-up, goodput against the objective, and quality per workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reports.cells import Cell
from reports.figures.axes import LabelledRows, rule, tag, value_axis
from reports.numbers import significant
from reports.svg import INK, MUTED
from reports.variants import Variant
from reports.words.doubts.doubt import against
from reports.words.ranking import label_rates
from results.compare.pairing import NATIVE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class BaselineMetrics(NamedTuple):
    """What a speed-up and the same answers are against, and the metrics that say so."""

    name: str
    speedup: str
    consistency: str
    faster: str = "speed-up"
    alike: str = "same answers"

    def is_of(self, variant: Variant) -> bool:
        """Whether a variant is the baseline itself."""
        return variant.backend == NATIVE if self is PLAIN else variant.is_reference

    def times(self, cell: Cell) -> float | None:
        """A cell's speed-up; of `OF_LABELS` only where answers are labels, under a closed load."""
        if self in OF_LABELS and not label_rates.compared([cell]):
            return None
        return cell.value(self.speedup)

    def compares(self, cell: Cell) -> bool:
        """Whether a cell has both numbers."""
        return None not in (self.times(cell), cell.value(self.consistency))


REFERENCE = BaselineMetrics("the reference", "speedup", "consistency_ratio")
PLAIN = BaselineMetrics(NATIVE, "speedup_native", "consistency_native")
"""Plain decoding on the same engine, the paper's baseline."""
FULL = BaselineMetrics(
    "full", "throughput_ratio", "rouge_l_to_full", "throughput", "ROUGE-L to full"
)
"""All layers, as the early-exit paper compares with them."""
LABELS = REFERENCE._replace(
    speedup=label_rates.OVER_REFERENCE, faster="labels per second", alike="same labels"
)
LABELS_TO_FULL = LABELS._replace(name=FULL.name)
OF_LABELS = (LABELS, LABELS_TO_FULL)
"""Answers that are labels have no decode time."""


def consistency_against_speedup(
    axes: Axes, cells: Sequence[Cell], baseline: BaselineMetrics
) -> None:
    """A point per variant and load: right is faster, up is the same answers; one workload."""
    for cell in cells:
        speedup, share = cell.value(baseline.speedup), cell.value(baseline.consistency)
        if speedup is None or share is None:
            continue
        low, high = cell.low(baseline.speedup) or speedup, cell.high(baseline.speedup) or speedup
        colour = cell.variant.colour
        doubt = against(cell, baseline.speedup, baseline.consistency)
        alpha = 0.35 if doubt else 1.0
        drawn = axes.plot([low, high], [share * 100] * 2, color=colour, linewidth=1.2, alpha=alpha)
        drawn += axes.plot(
            speedup, share * 100, cell.variant.marker,
            color=colour, markersize=5.5, alpha=alpha, clip_on=False,
        )  # fmt: skip
        note = f"{cell.load}, {speedup:.2f}×, {share:.1%} {baseline.alike}"
        tag(drawn, cell, f"{note}, {doubt}" if doubt else note)
    rule(axes, x=1.0)
    floors = [f for cell in cells if (f := cell.value("noise_floor")) is not None]
    if floors and baseline in (REFERENCE, LABELS):
        rule(axes, y=min(floors) * 100)
    _tight_share_axis(axes, cells, baseline)
    # the points decide: an interval that leaves everything open would squash them
    found = [1.0, *(v for c in cells if (v := c.value(baseline.speedup)) is not None)]
    room = 0.3 * (max(found) - min(found)) or 0.2
    value_axis(axes, "x", [])
    axes.set_xlim(max(0.0, min(found) - room), max(found) + room)
    axes.set_xlabel(f"{baseline.faster} over {baseline.name} (×)")
    axes.set_ylabel(f"{baseline.alike} (%)")


def quality_against_speedup(
    axes: Axes, points: Sequence[tuple[Cell, float]], baseline: BaselineMetrics, metric_label: str
) -> None:
    """A point per variant and load with the task score of its answers; dashed: the Pareto front, to
    whose right and above nothing valid lies. One workload."""
    for cell, score in points:
        speedup = cell.value(baseline.speedup) or 1.0
        drawn = axes.plot(
            speedup, score, cell.variant.marker, color=cell.variant.colour,
            markersize=5.5, alpha=1.0 if cell.holds(baseline.speedup) else 0.35, clip_on=False,
        )  # fmt: skip
        tag(drawn, cell, f"{cell.load}, {speedup:.2f}×, {metric_label} {significant(score)}")
    sound = [(c.value(baseline.speedup) or 1.0, s) for c, s in points if c.holds(baseline.speedup)]
    front = pareto_front(sound)
    if len(front) > 1:
        axes.step(
            [x for x, _ in front], [y for _, y in front], where="pre", color=MUTED, linewidth=1.0,
            linestyle=(0, (3, 2)), zorder=1,
        )  # fmt: skip
    rule(axes, x=1.0)
    scores, speeds = [s for _, s in points], [c.value(baseline.speedup) or 1.0 for c, _ in points]
    room = max(0.02, 0.15 * (max(scores) - min(scores)))
    axes.set_ylim(max(0.0, min(scores) - room), min(1.02, max(scores) + room))
    value_axis(axes, "x", [])
    width = 0.15 * (max([1.0, *speeds]) - min([1.0, *speeds])) or 0.2
    axes.set_xlim(max(0.0, min([1.0, *speeds]) - width), max([1.0, *speeds]) + width)
    axes.set_xlabel(f"{baseline.faster} over {baseline.name} (×)")
    axes.set_ylabel(metric_label)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (speed, quality), more of both being better, those that no other one beats in both, by
    speed."""
    front: list[tuple[float, float]] = []
    for x, y in sorted(points, reverse=True):
        if not front or y > front[-1][1]:
            front.append((x, y))
    return front[::-1]


def _tight_share_axis(axes: Axes, cells: Sequence[Cell], baseline: BaselineMetrics) -> None:
    shares = [s * 100 for cell in cells if (s := cell.value(baseline.consistency)) is not None]
    lowest = min(shares, default=0.0)
    bottom = max(0.0, np.floor((lowest - 5) / 10) * 10) if lowest > 20 else 0.0
    axes.set_ylim(bottom, 100 + (100 - bottom) * 0.05)


def goodput_against_scale(
    axes: Axes, curves: Mapping[Cell, tuple[Sequence[float], Sequence[float]]]
) -> None:
    """Requests per second within the objective, its bounds multiplied by what is on the x axis."""
    from matplotlib.ticker import NullLocator

    scales: list[float] = []
    for cell, (x, y) in curves.items():
        scales = list(x)
        lines = axes.plot(
            x, y, color=cell.variant.colour, linestyle=cell.variant.line, linewidth=1.6,
            alpha=0.35 if (doubt := against(cell, "goodput_req_per_s")) else 1.0,
        )  # fmt: skip
        given = min(zip(x, y, strict=True), key=lambda point: abs(point[0] - 1))[1]
        note = f"{significant(given)} requests/s at the objective as given"
        tag(lines, cell, f"{note}, {doubt}" if doubt else note)
    axes.set_xscale("log", base=2)
    ticks = [s for s in (0.25, 0.5, 1, 2, 4, 8) if scales and scales[0] <= s <= scales[-1]]
    axes.set_xticks(ticks, [f"{s:g}×" for s in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    rule(axes, x=1.0)
    value_axis(axes, "y", [])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("scale of the objective")
    axes.set_ylabel("goodput (requests/s)")


def quality(
    axes: Axes, rows: Sequence[tuple[Cell, float, float, float]], metric_label: str
) -> None:
    """Task quality with its 95% interval per variant; rows are (cell, value, low, high) of a
    workload."""
    placed = LabelledRows(axes)
    for cell, value, low, high in rows:
        y = placed.place(cell, headed=False)
        colour = cell.variant.colour
        drawn = list(axes.plot([low, high], [y, y], color=colour, linewidth=1.6, alpha=0.6))
        drawn += axes.plot(value, y, "o", color=colour, markersize=5.5, clip_on=False)
        note = significant(value)
        text = axes.annotate(note, (1.04, y), xycoords=("axes fraction", "data"))
        text.set(va="center", fontsize=8, color=INK)
        ends = f"[{significant(low)}, {significant(high)}]"
        tag([*drawn, text], cell, f"{metric_label} {note} {ends}")
    placed.finish()
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_xlabel(metric_label)
