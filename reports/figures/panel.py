"""The frame every plot shares: a small panel that reads well alone, beside others and on a phone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from reports.svg import GRID, INK, MUTED, RC, inline_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from reports.variants import Variant

WIDTH_IN = 3.6
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


class Panel(NamedTuple):
    """A drawn plot with what the page's filters need to know about it."""

    svg: Markup
    caption: str
    workload: str | None = None
    load: str | None = None


@contextmanager
def drawing() -> Iterator[None]:
    """Settings that every figure is drawn under. Enter once around many panels: it is not free."""
    import matplotlib

    with matplotlib.rc_context(RC):
        yield


def draw(
    paint: Callable[[Axes], None], *, prefix: str, title: str, height_in: float = 2.2
) -> Markup:
    """One axes of the common width, painted by `paint`, as inline SVG. Needs `drawing()` around it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02)
    axes = figure.add_subplot()
    paint(axes)
    return inline_svg(figure, prefix, title)


def tag(artists: Any, variant: Variant) -> None:
    """Mark what was drawn as belonging to a variant, for the page's backend filter."""
    for artist in artists if isinstance(artists, list | tuple) else [artists]:
        artist.set_gid(f"series={variant.id}")


def plain_numbers(axes: Axes, which: str) -> None:
    """Tick labels as short decimals, also on a logarithmic axis: 0.5, 20, 3k."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis = getattr(axes, f"{which}axis")
    axis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axis.set_minor_formatter(NullFormatter())


def log_axis(axes: Axes, which: str, values: Sequence[float]) -> None:
    """A logarithmic axis with ticks at 1, 2, 5 when the values span less than two decades."""
    from matplotlib.ticker import LogLocator

    axis = getattr(axes, f"{which}axis")
    positive = [v for v in values if v > 0]
    if not positive:
        return
    getattr(axes, f"set_{which}scale")("log")
    decades = math.log10(max(positive) / min(positive))
    steps = (1.0, 2.0, 5.0) if decades < 2 else (1.0, 3.0) if decades < 3 else (1.0,)
    axis.set_major_locator(LogLocator(base=10, subs=steps))
    plain_numbers(axes, which)


def short_number(value: float) -> str:
    """Up to three significant digits with k and M: ``0.25``, ``12``, ``1.5k``."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.3g}M"
    if size >= 1e4:
        return f"{value / 1e3:.3g}k"
    return f"{value:.4g}" if size >= 1000 else f"{value:.3g}"


def rows_axis(axes: Axes, labels: Sequence[tuple[float, str, bool]]) -> None:
    """Label rows from top to bottom on the y axis; a heading row is set in the ink colour, bold."""
    axes.set_yticks([y for y, _, _ in labels], [text for _, text, _ in labels])
    for tick, (_, _, is_heading) in zip(axes.get_yticklabels(), labels, strict=True):
        if is_heading:
            tick.set_color(INK)
            tick.set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    bottom = max((y for y, _, _ in labels), default=0.0)
    axes.set_ylim(bottom + 0.7, -0.7)


def rule(axes: Axes, *, x: float | None = None, y: float | None = None) -> None:
    """A dashed line that marks a value to compare with (1x, the noise floor, the SLO as given)."""
    if x is not None:
        axes.axvline(x, color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    if y is not None:
        axes.axhline(y, color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)


__all__ = [
    "GRID",
    "INK",
    "MARKERS",
    "MUTED",
    "Panel",
    "draw",
    "drawing",
    "log_axis",
    "plain_numbers",
    "rows_axis",
    "rule",
    "short_number",
    "tag",
]
