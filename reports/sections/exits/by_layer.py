"""Where tokens, or labels, leave the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from reports.cells import Cell, Overview
from reports.collect import Samples
from reports.figures import exits as figures
from reports.figures.axes import short_label
from reports.numbers import percent
from reports.panels import Panel, Place, group, measured, panels
from reports.sections import Section
from reports.words import techniques
from reports.words.findings import place
from reports.words.ranking.label_rates import counted_in


def section(seen: Overview, _: Samples) -> Section | None:
    """A panel per load; None where nothing has exits."""
    cells = [cell for cell in measured(seen) if cell.metrics.get("exits_by_layer")]
    if not cells:
        return None
    found = panels(seen, _histogram, [c for c in cells if figures.shares(c)], per="load")
    note = (
        f"{counted_in(cells).capitalize()} by where they were predicted: after the layer with this "
        "number (the deeper, the fainter) or at full depth (grey, all)."
    )
    if any(cell.value("early_prediction_rate") is not None for cell in cells):
        note += " Outlined beyond 100%: drafts that verification threw away."
    if any(techniques.leaves_early(cell) for cell in cells):
        note += (
            " Where a batch leaves together, the thin bar below it is where each sequence would "
            "have left alone."
        )
    return Section(
        "exits", "Exits by layer", note, group(found), short="Exits", finding=_finding(cells)
    )


def _finding(cells: Sequence[Cell]) -> str:
    known = [c for c in cells if figures.believed(c)] or cells
    early = {cell: 1 - found.full_depth for cell in known if (found := figures.shares(cell))}
    if not early:
        return "No token was decoded where exits are counted."
    least, most = (end(early, key=lambda cell: early[cell]) for end in (min, max))
    return (
        f"{percent(early[least])}% ({place(least)}) to {percent(early[most])}% ({place(most)}) of "
        f"the {counted_in(early)} were predicted before full depth."
    )


def _histogram(place: Place) -> Iterator[Panel]:
    what = counted_in(place.cells)
    title = f"Share of {what} by the layer they were committed at{place.words}"
    named = techniques.naming(place.cells)

    def name(cell: Cell) -> str:
        return named(cell) if techniques.leaves_early(cell) else short_label(cell)

    yield Panel(partial(figures.histogram, cells=place.cells, name=name), title)
