"""The latencies of requests: percentiles, and distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from reports.cells import Cell
from reports.figures.axes import LabelledRows, short_number, tag, value_axis
from reports.svg import SURFACE
from reports.words.doubts.doubt import against

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LATENCIES = {
    "ttft_s": "Time to first token",
    "tpot_s": "Time per output token",
    "e2e_s": "End-to-end latency",
}
PERCENTILES = ("p50", "p95", "p99")
_CURVE = np.unique(
    np.concatenate([np.linspace(0, 0.9, 61), 1 - np.geomspace(0.1, 0.001, 30), [1.0]])
)


def percentiles(axes: Axes, cells: Sequence[Cell], metric: str) -> None:
    """Median (dot), p95 (ring) and p99 (bar) of one latency per cell, grouped by workload; one
    load."""
    rows = LabelledRows(axes)
    seen: list[float] = []
    for cell in cells:
        y = rows.place(cell)
        values = [cell.value(f"{metric}_{p}") for p in PERCENTILES]
        known = [v * 1000 for v in values if v is not None]
        if len(known) == len(PERCENTILES):
            _range(axes, cell, known, y, against(cell, f"{metric}_p50"))
            seen += known
    rows.finish()
    value_axis(axes, "x", seen)
    if axes.get_xscale() == "linear":
        axes.set_xlim(left=0)
    axes.set_xlabel("milliseconds")


def _range(axes: Axes, cell: Cell, known: Sequence[float], y: float, doubt: str) -> None:
    p50, p95, p99 = known
    colour = cell.variant.colour
    alpha = 0.35 if doubt else 1.0
    drawn = axes.plot([p50, p99], [y, y], color=colour, linewidth=1.4, alpha=0.5 * alpha)
    drawn += axes.plot(p99, y, "|", color=colour, markersize=7, markeredgewidth=1.6, alpha=alpha)
    drawn += axes.plot(
        p95, y, "o", markerfacecolor=SURFACE, markeredgecolor=colour, markersize=4.6, alpha=alpha
    )
    drawn += axes.plot(p50, y, "o", color=colour, markersize=5.2, alpha=alpha)
    note = ", ".join(f"{n} {short_number(v)}" for n, v in zip(PERCENTILES, known, strict=True))
    tag(drawn, cell, ", ".join(filter(None, (cell.workload, f"{note} ms", doubt))))


def distribution(axes: Axes, curves: Mapping[Cell, np.ndarray], metric: str) -> None:
    """The share of requests at or under each latency, a step per variant; one workload, one load.

    `curves` holds the values of `metric` per request in seconds. Each curve is drawn through fixed
    quantiles, denser in the slow tail, so that its size does not grow with the number of requests.
    Faint: not to be believed.
    """
    seen: list[float] = []
    for cell, values in curves.items():
        if len(values) == 0:
            continue
        at = np.quantile(values, _CURVE, method="inverted_cdf") * 1000
        seen += [float(at[0]), float(at[-1])]
        doubt = against(cell, f"{metric}_p50")
        lines = axes.step(
            at, _CURVE * 100, where="post", color=cell.variant.colour, linestyle=cell.variant.line,
            linewidth=1.5, alpha=0.35 if doubt else 1.0,
        )  # fmt: skip
        median = f"median {short_number(float(np.median(values)) * 1000)} ms"
        tag(lines, cell, ", ".join(filter(None, (f"{len(values):,} requests", median, doubt))))
    value_axis(axes, "x", seen)
    axes.set_ylim(0, 102)
    axes.set_yticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100"])
    axes.set_xlabel("milliseconds")
    axes.set_ylabel("% of requests")
