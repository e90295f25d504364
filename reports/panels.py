"""The panels of figures: a section says what one shows, and `panels` goes over load x workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, product
from typing import TYPE_CHECKING, Literal, NamedTuple

from markupsafe import Markup

from reports.cells import Cell, Overview
from reports.figures.axes import LABELS_IN, ROW_IN, headings, tell_scales
from reports.svg import RC, inline_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FOUR = 4
_NARROW_IN = 2.8
"""For four panels beside each other; drawn narrower, so that their text keeps its size."""
_WIDE_IN = 3.9
"""For rows with labels."""


class Size(NamedTuple):
    """A panel and its margins, in inches. Margins are fixed, so that axes line up from panel to
    panel (and because fitting them to the labels costs matplotlib more than all the rest)."""

    width: float = 3.5
    height: float = 2.1
    left: float = 0.52
    right: float = 0.1


class Place(NamedTuple):
    """Where a panel stands: its load and its workload, None of what it is over, and its cells."""

    load: str | None
    workload: str | None
    cells: list[Cell]

    @property
    def words(self) -> str:
        """The end of a title: ``: gsm8k, closed c=1``."""
        workload = "" if self.workload is None else f": {self.workload}"
        return workload + ("" if self.load is None else f", {self.load}")


class Panel(NamedTuple):
    """What one panel shows. `panels` puts it in its place, which the page's filters look at."""

    paint: Callable[[Axes], None]
    title: str
    """For those who do not see it, with the place."""
    caption: str = ""
    """The place's workload or load where it is empty."""
    size: Size | None = None
    """Where it is not as its neighbours have it."""
    workload: str | None = None
    load: str | None = None


class PanelGroup(NamedTuple):
    """Panels beside each other under a heading, or folded away under it."""

    panels: Sequence[Panel]
    title: str = ""
    load: str | None = None
    fold: bool = False
    open: bool = False


def panels(
    seen: Overview,
    make: Callable[[Place], Iterable[Panel]],
    cells: Sequence[Cell] | None = None,
    *,
    per: Literal["load", "workload", "both"] = "both",
) -> list[Panel]:
    """What `make` makes of each place that has `cells` (without them: those with numbers).

    With `per` "load" a panel is over all workloads and has a row per cell; with "workload" it is
    over all loads.
    """
    if cells is None:
        cells = measured(seen)
    found = []
    for load, workload in product(
        seen.loads if per != "workload" else [None], seen.workloads if per != "load" else [None]
    ):
        own = [c for c in cells if load in (None, c.load) and workload in (None, c.workload)]
        if not own:
            continue
        usual = rows(len(own), headings(own)) if per == "load" else beside(seen)
        for panel in make(Place(load, workload, own)):
            caption, size = panel.caption or workload or load or "", panel.size or usual
            found.append(Panel(panel.paint, panel.title, caption, size, workload, load))
    return found


def group(found: Sequence[Panel], title: str = "") -> list[PanelGroup]:
    """One group of these panels; none where there are none."""
    return [PanelGroup(found, title)] if found else []


def by_load(found: Iterable[Panel]) -> Iterator[tuple[str, list[Panel]]]:
    """The panels of each load."""
    for load, own in groupby(found, key=lambda panel: panel.load or ""):
        yield load, list(own)


def folded(found: Iterable[Panel]) -> list[PanelGroup]:
    """A group per load, the first of them open."""
    return [
        PanelGroup(own, load, load, fold=True, open=place == 0)
        for place, (load, own) in enumerate(by_load(found))
    ]


def measured(seen: Overview) -> list[Cell]:
    """The cells that have numbers."""
    return [cell for cell in seen.cells if cell.is_measured]


def beside(seen: Overview) -> Size:
    """The size of a panel that has one beside it per workload."""
    return Size(width=_NARROW_IN) if len(seen.workloads) == _FOUR else Size()


def rows(count: int, headings: int) -> Size:
    """The size of a panel with so many rows and headings."""
    return Size(_WIDE_IN, height=0.5 + ROW_IN * (count + 1.2 * headings), left=LABELS_IN)


@contextmanager
def drawing() -> Iterator[None]:
    """Settings that every figure is drawn under. Enter once around many panels: it is not free."""
    import matplotlib

    with matplotlib.rc_context(RC):
        yield


def draw(panel: Panel, prefix: str) -> Markup:
    """The panel as inline SVG; `prefix` is unique in the page. Needs `drawing()` around it."""
    from matplotlib.figure import Figure

    width, height, left, right = panel.size or Size()
    figure = Figure(figsize=(width, height))
    bottom, top = 0.42 / height, 1 - 0.06 / height
    axes = figure.add_axes((left / width, bottom, 1 - (left + right) / width, top - bottom))
    panel.paint(axes)
    tell_scales(axes)
    return inline_svg(figure, prefix, panel.title)
