"""What the plots share: rows with labels, axes with few numbers, marks for the page's filters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from reports.svg import INK, MUTED, SURFACE
from reports.text import shortened
from reports.words.findings import named

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reports.cells import Cell
    from reports.variants import Variant

LABELS_IN = 1.66
"""Width of the row labels of a panel with a row per variant."""
LABEL_LENGTH = 28
ROW_IN = 0.18
MOST_DIGITS = 9
"""No measurement has more."""


def tag(artists: Any, cell: Cell, note: str = "") -> None:
    """Mark what was drawn as a variant's, for the page's backend filter, with a note shown on
    pointing."""
    lossy = " (lossy)" if cell.variant.lossy else ""
    text = f"{named(cell, cell.variant.label + lossy)}: {note}" if note else ""
    for artist in artists if isinstance(artists, list | tuple) else [artists]:
        artist.set_gid(f"series={cell.variant.id}={text}")


def marked_line(
    axes: Axes,
    variant: Variant,
    x: Sequence[float],
    y: Sequence[float],
    hollow: Sequence[int],
    size: float,
    alpha: float | None = None,
) -> list[Any]:
    """A variant's line with a marker at each point, hollow at these places."""
    style: dict[str, Any] = {"color": variant.colour, "marker": variant.marker}
    style |= {"markersize": size, "alpha": alpha}
    drawn = axes.plot(x, y, linestyle=variant.line, linewidth=1.6, **style)
    some = [x[place] for place in hollow], [y[place] for place in hollow]
    return [*drawn, *axes.plot(*some, linestyle="", markerfacecolor=SURFACE, **style)]


def plain_numbers(axes: Axes, which: str) -> None:
    """Tick labels as short decimals, also on a logarithmic axis: 0.5, 20, 3k; of ticks that are
    near to each other as long as it takes to tell them apart."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis = getattr(axes, f"{which}axis")

    def label(value: float, _: int | None) -> str:
        ticks = axis.get_majorticklocs()
        return short_number(value, digits_apart(ticks, ticks))

    axis.set_major_formatter(FuncFormatter(label))
    axis.set_minor_formatter(NullFormatter())


def value_axis(axes: Axes, which: str, values: Sequence[float], log_from: float = 8.0) -> None:
    """Logarithmic where the greatest value is `log_from` times the least; few ticks."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    positive = [v for v in values if v > 0]
    axis = getattr(axes, f"{which}axis")
    if positive and max(positive) / min(positive) >= log_from:
        getattr(axes, f"set_{which}scale")("log")
        decades = math.log10(max(positive) / min(positive))
        steps = (1.0, 2.0, 5.0) if decades < 1.6 else (1.0, 3.0) if decades < 2.6 else (1.0,)
        axis.set_major_locator(LogLocator(base=10, subs=steps))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    plain_numbers(axes, which)


def tell_scales(axes: Axes) -> None:
    """Say in the labels which axes are logarithmic, once they are final; upright there is room for
    little more than the label."""
    for axis, words in ((axes.xaxis, "log scale"), (axes.yaxis, "log")):
        if axis.get_scale() == "log":
            axis.set_label_text(", ".join(filter(None, (axis.get_label_text(), words))))


def digits_apart(values: Iterable[float], ticks: Iterable[float]) -> int:
    """The significant digits, at least three, with which no value moves by a twentieth of the
    distance of the ticks."""
    places = sorted(ticks)
    least = min((high - low for low, high in pairwise(places) if high > low), default=math.inf)
    some, digits = list(values), 3
    while digits < MOST_DIGITS and any(
        abs(float(f"{value:.{digits}g}") - value) > least / 20 for value in some
    ):
        digits += 1
    return digits


def short_number(value: float, digits: int = 3) -> str:
    """Up to so many significant digits with k and M: ``0.25``, ``12``, ``1.5k``."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.{digits}g}M"
    if size >= 9999.5:
        return f"{value / 1e3:.{digits}g}k"
    return f"{value:.{max(digits, 4 if size >= 999.5 else 3)}g}"


def short_label(cell: Cell) -> str:
    """What a cell's row is called where all backends are shown."""
    return cell.variant.short_label


def headings(cells: Iterable[Cell]) -> int:
    """How many headings `LabelledRows` puts above the rows of these cells."""
    return len({(cell.workload, cell.apart) for cell in cells})


class LabelledRows:
    """Rows with labels at the left edge: a heading per workload and settings, a row per cell."""

    def __init__(self, axes: Axes, name: Callable[[Cell], str] = short_label) -> None:
        self.axes = axes
        self._name = name
        self.y = -1.0
        self._heading: str | None = None

    def place(self, cell: Cell, *, headed: bool = True) -> float:
        """The y of the next row, after a heading where the workload or its settings change."""
        heading = named(cell, cell.workload)
        if headed and heading != self._heading:
            self._heading = heading
            self.y += 1.2
            self._label(shortened(heading, 40), INK, "bold")
        self.y += 1.0
        self._label(shortened(self._name(cell), LABEL_LENGTH), MUTED, "normal")
        return self.y

    def finish(self) -> None:
        """Set the y axis to the rows placed."""
        self.axes.set_yticks([])
        self.axes.grid(visible=False, axis="y")
        self.axes.spines["left"].set_visible(False)
        self.axes.set_ylim(self.y + 0.6, -0.6)

    def _label(self, text: str, colour: str, weight: str) -> None:
        width_in = self.axes.bbox.width / self.axes.figure.dpi
        left = -LABELS_IN / width_in
        self.axes.text(
            left, self.y, text, color=colour, weight=weight, fontsize=8, va="center",
            transform=self.axes.get_yaxis_transform(),
        )  # fmt: skip


def rule(axes: Axes, *, x: float | None = None, y: float | None = None) -> None:
    """A dashed line that marks a value to compare with (1x, the noise floor, the SLO as given)."""
    if x is not None:
        axes.axvline(x, color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    if y is not None:
        axes.axhline(y, color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
