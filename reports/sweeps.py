"""Cells that differ in one numeric option: what a sweep over it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from harness.core.nouns import canonical_json
from reports.cells import Cell, Overview
from reports.figures import sweeps as figures
from reports.figures.sweeps import Curve, Drawn
from reports.panels import Panel, PanelGroup, Place, by_load, panels
from reports.text import clipped, visible
from reports.variants import plain

FEWEST_VALUES = 3
"""A curve needs so many."""


class Sweep(NamedTuple):
    """An option that cells differ in."""

    option: str
    name: str
    """In the titles of panels."""
    sign: str
    """At the points."""
    axis: str


def sweep_panels(
    seen: Overview, sweep: Sweep, cells: Sequence[Cell], quantities: Sequence[Drawn]
) -> list[PanelGroup]:
    """A panel per quantity, load and workload; none without enough values of the option."""
    several = len({cell.load for cell in cells}) > 1
    return [
        PanelGroup(own, f"{quantity.title}, {load}" if several else quantity.title)
        for quantity in quantities
        for load, own in by_load(panels(seen, partial(_panels, sweep, quantity), cells))
    ]


def _panels(sweep: Sweep, quantity: Drawn, place: Place) -> Iterator[Panel]:
    told = [cell for cell in place.cells if cell.value(quantity.metric) is not None]
    if curves := option_curves(told, sweep.option):
        paint = partial(
            figures.against_option,
            curves=curves,
            quantity=quantity,
            sign=sweep.sign,
            axis=sweep.axis,
        )
        yield Panel(paint, f"{quantity.title} against {sweep.name}{place.words}")


def option_curves(cells: Sequence[Cell], option: str) -> list[Curve]:
    """Cells of one workload and load that differ in a numeric option only, where there are at least
    three. Labelled with the options that set several such curves apart."""
    found: dict[str, list[tuple[float, Cell]]] = {}
    rests: dict[str, Mapping[str, Any]] = {}
    for cell in cells:
        value = cell.variant.options.get(option)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        rest = {k: v for k, v in cell.variant.options.items() if k != option}
        key = canonical_json([cell.variant.backend, rest])
        found.setdefault(key, []).append((float(value), cell))
        rests[key] = rest
    kept = {k: v for k, v in found.items() if len({value for value, _ in v}) >= FEWEST_VALUES}
    labels = {key: _label(rests[key], [rests[k] for k in kept]) for key in kept}
    return [
        Curve(labels[key], sorted(points, key=lambda point: point[0]))
        for key, points in kept.items()
    ]


def _label(own: Mapping[str, Any], all_: Sequence[Mapping[str, Any]]) -> str:
    differing = [k for k in own if any(other.get(k) != own[k] for other in all_)]
    return visible(clipped(" ".join(f"{k}={plain(own[k])}" for k in differing), 40))
