"""Throughput, and what it is of another's: as bars per load, and against the load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reports.cells import Cell
from reports.figures.axes import (
    LabelledRows,
    marked_line,
    rule,
    short_label,
    short_number,
    tag,
    value_axis,
)
from reports.numbers import ratio
from reports.svg import INK, MUTED, SURFACE
from reports.words.doubts.doubt import UNEQUAL, UNEQUAL_SHORT, against
from reports.words.ranking.label_rates import are_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRIC = "output_tok_per_s"
LATENCY = "tpot_s_p50"


class Quantity(NamedTuple):
    """What bars show."""

    metric: str
    label: str
    """Of the axis."""
    unit: str
    is_ratio: bool = False
    """Of the reference's, which is then marked at 1."""


TOKENS = Quantity(METRIC, "output tokens per second", " tokens/s")
LABELS = Quantity("request_per_s", "labels per second", " labels/s")
GOODPUT = Quantity("goodput_req_per_s", "goodput (requests/s)", " requests/s")


def by_kind(cells: Iterable[Cell]) -> dict[Quantity, list[Cell]]:
    """The cells by what their throughput is of."""
    found: dict[Quantity, list[Cell]] = {}
    for cell in cells:
        found.setdefault(LABELS if are_labels(cell) else TOKENS, []).append(cell)
    return found


def bars(
    axes: Axes,
    cells: Sequence[Cell],
    quantity: Quantity = TOKENS,
    name: Callable[[Cell], str] = short_label,
    headed: bool = True,
) -> None:
    """One bar per cell, grouped by workload (with a heading for each where `headed`), with the
    range of the repeats; one load."""
    rows = LabelledRows(axes, name)
    for cell in cells:
        _bar(axes, cell, rows.place(cell, headed=headed), quantity)
    rows.finish()
    metric = quantity.metric
    top = max((cell.high(metric) or cell.value(metric) or 0.0 for cell in cells), default=0.0)
    room = 1.25 if all(cell.holds(metric) for cell in cells) else 1.5
    axes.set_xlim(0, max(top, float(quantity.is_ratio)) * room or 1.0)
    if quantity.is_ratio:
        rule(axes, x=1.0)
    value_axis(axes, "x", [])
    axes.set_xlabel(quantity.label)


def _bar(axes: Axes, cell: Cell, y: float, quantity: Quantity) -> None:
    metric = quantity.metric
    value, low, high = cell.value(metric), cell.low(metric), cell.high(metric)
    if value is None:
        text = axes.annotate("no value", (0, y), xytext=(4, 0), textcoords="offset points")
        text.set(color=MUTED, va="center", fontsize=7.5)
        tag(text, cell)
        return
    bar = axes.barh(y, value, height=0.68, color=cell.variant.colour, linewidth=0)
    bar.patches[0].set_alpha(0.85 if cell.holds(metric) else 0.3)
    drawn: list[Any] = list(bar.patches)
    if low is not None and high is not None and high > low:
        drawn += axes.plot([low, high], [y, y], color=INK, linewidth=1.1, solid_capstyle="butt")
    shown = ratio(value) if quantity.is_ratio else short_number(value)
    doubt = against(cell, metric)
    beside = UNEQUAL_SHORT if doubt == UNEQUAL else doubt
    note = f"{shown}  {beside}" if beside else shown
    # a number stands behind the line at 1, not on it
    end = max(value, high or value, float(quantity.is_ratio))
    text = axes.annotate(note, (end, y), xytext=(4, 0), textcoords="offset points")
    text.set(color=INK if cell.holds(metric) else MUTED, va="center", fontsize=7.5)
    said = (cell.workload, f"{shown}{quantity.unit}", doubt)
    tag([*drawn, text], cell, ", ".join(filter(None, said)))


def against_load(
    axes: Axes, cells: Sequence[Cell], x_label: str, quantity: Quantity = TOKENS
) -> None:
    """A line per variant, and per limit of its rates, over the load's number (concurrency or rate);
    one workload, one kind of load."""
    by_variant: dict[tuple[int, str, int], list[Cell]] = {}
    for cell in cells:
        if cell.value(quantity.metric) is not None and cell.load_value is not None:
            most = 0 if cell.load_kind == "closed" else cell.metrics.get("concurrency") or 0
            by_variant.setdefault((cell.variant.index, cell.asked, most), []).append(cell)
    for group in by_variant.values():
        _line(axes, sorted(group, key=lambda cell: cell.load_value or 0.0), quantity)
    points = sorted({cell.load_value for cell in cells if cell.load_value is not None})
    value_axis(axes, "x", points, log_from=4.0)
    axes.set_xticks(points)
    value_axis(axes, "y", [])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel(quantity.label)


def against_latency(axes: Axes, cells: Sequence[Cell]) -> None:
    """A line per variant through its loads: to the right more tokens, below sooner; one workload.
    Hollow: not valid."""
    drawn_x, drawn_y = [], []
    for index, asked in dict.fromkeys((cell.variant.index, cell.asked) for cell in cells):
        points = sorted(
            (x, y * 1e3, cell.order, cell)
            for cell in cells
            if (cell.variant.index, cell.asked) == (index, asked)
            and (x := cell.value(METRIC)) is not None
            and (y := cell.value(LATENCY)) is not None
        )
        if not points:
            continue
        variant = points[0][3].variant
        line = axes.plot(
            [x for x, *_ in points], [y for _, y, *_ in points], color=variant.colour,
            linestyle=variant.line, linewidth=1.2, alpha=0.7,
        )  # fmt: skip
        tag(line, points[0][3])
        for x, y, _, cell in points:
            holds = cell.holds(METRIC) and cell.holds(LATENCY)
            dot = axes.plot(
                x, y, variant.marker, color=variant.colour, markersize=4.5,
                markerfacecolor=variant.colour if holds else SURFACE, clip_on=False,
            )  # fmt: skip
            said = f"{short_number(x)} tokens/s, {short_number(y)} ms per token"
            tag(dot, cell, f"{cell.load}, {said}{'' if holds else ', not valid'}")
        drawn_x += [x for x, *_ in points]
        drawn_y += [y for _, y, *_ in points]
    value_axis(axes, "x", drawn_x)
    value_axis(axes, "y", drawn_y)
    axes.set_xlabel("output tokens/s")
    axes.set_ylabel("median ms per token")


def _line(axes: Axes, cells: Sequence[Cell], quantity: Quantity) -> None:
    metric = quantity.metric
    variant = cells[0].variant
    x = [cell.load_value or 0.0 for cell in cells]
    y = [cell.value(metric) or 0.0 for cell in cells]
    low = [cell.low(metric) or v for cell, v in zip(cells, y, strict=True)]
    high = [cell.high(metric) or v for cell, v in zip(cells, y, strict=True)]
    band = axes.fill_between(x, low, high, color=variant.colour, alpha=0.18, linewidth=0)
    void = [place for place, cell in enumerate(cells) if not cell.holds(metric)]
    lines = marked_line(axes, variant, x, y, void, 4)
    note = " to ".join(short_number(v) for v in (min(y), max(y))) + quantity.unit
    for doubt in dict.fromkeys(against(cells[place], metric) for place in void):
        at = [f"{x[place]:g}" for place in void if against(cells[place], metric) == doubt]
        note += f", {doubt} at " + ", ".join(at)
    tag([band, *lines], cells[0], note)
