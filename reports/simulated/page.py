"""One self-contained page of a paper's figures beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from markupsafe import Markup

from reports.figures.axes import value_axis
from reports.page import CSS, template
from reports.panels import Panel, Size, draw, drawing
from reports.simulated.figure import PaperFigure
from reports.svg import MUTED, series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def figures_page(title: str, figures: Sequence[PaperFigure]) -> str:
    """The page's HTML, which needs nothing else."""
    with drawing():
        drawn = [(one, _drawn(one, f"f{place}-")) for place, one in enumerate(figures)]
    css = Markup(CSS.read_text(encoding="utf-8"))
    page = template("simulated/page.html.j2")
    overview = [
        (Markup('<a href="#f{}">{}</a>').format(n, one.name), one.paper, one.ours(), one.provenance)
        for n, one in enumerate(figures, 1)
    ]
    return page.render(title=title, figures=drawn, css=css, overview=overview)


def _drawn(one: PaperFigure, prefix: str) -> Markup:
    size = Size(width=5.4, height=2.6, left=0.6, right=1.6)
    return draw(Panel(partial(_paint, one=one), f"{one.name}: {one.title}", size=size), prefix)


def _paint(axes: Axes, one: PaperFigure) -> None:
    every = [value for values in one.series.values() for value in values if value is not None]
    for number, (name, values) in enumerate(one.series.items(), 1):
        places = [place for place, value in enumerate(values) if value is not None]
        some = [value for value in values if value is not None]
        colour = series_colour(number)
        axes.plot(places, some, "o-", markersize=4, linewidth=1.4, color=colour, label=name)
    value_axis(axes, "y", every, log_from=40.0)
    if axes.get_yscale() == "linear" and every:
        axes.set_ylim(0, 1.08 * max(every) or 1.0)
    axes.set_xticks(range(len(one.at)), list(one.at))
    axes.set_xlabel(one.at_label)
    axes.set_ylabel(one.unit)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, labelcolor=MUTED)
