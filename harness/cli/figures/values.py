"""The values of a series, by what its figure is of."""

from __future__ import annotations

import math
from collections.abc import Iterator

from backends.tetris.figures import costs, forecasts
from backends.tetris.figures.goodput import best
from backends.tetris.figures.point import FigurePoint
from backends.tetris.figures.shift import goodput_by_mix
from backends.tetris.figures.unplanned import needed_slo_ms
from harness.cli.figures.figure_file import (
    BY_MIX,
    DEVICES,
    ERROR,
    GOODPUT,
    PLANNING,
    PRICE,
    SURVIVAL,
    AskedFigure,
    AskedSeries,
)
from harness.core.errors import UserError

UNITS = {
    GOODPUT: ("goodput, requests a second", 0),
    BY_MIX: ("goodput, requests a second", 0),
    DEVICES: ("devices", 0),
    PRICE: ("price an hour", 1),
    PLANNING: ("ms", 0),
    SURVIVAL: ("share that passes the first ramp", 3),
    ERROR: ("mean absolute error of a share", 4),
}
"""And digits behind the point."""


def values(asked: AskedFigure, series: AskedSeries) -> list[float | None]:
    """One for each place of the figure; None where nothing meets the SLO."""
    if asked.measure == BY_MIX:
        mixes, point = asked.places, series.points[0]
        found = goodput_by_mix(point, series.system, mixes, asked.window_s)
        return [one or None for one in found]
    if asked.measure == SURVIVAL:
        told = asked.drift, asked.places, asked.inputs
        return list(forecasts.survival_by_window(*told, series.system))
    if asked.measure == ERROR:
        size = asked.windows, asked.inputs
        return [forecasts.forecast_error(one, *size, series.system) for one in asked.places]
    return [_value(asked, series.system, point) for point in series.points]


def unplanned(
    asked: AskedFigure, series: AskedSeries, found: list[float | None], at: list[str]
) -> Iterator[str]:
    """A line for each place, called as in `at`, at which there is no plan: what one would need.
    Raises `UserError` where there is none at all."""
    mixes = asked.places if asked.measure == BY_MIX else ()
    needed = [
        needed_slo_ms(point, series.system, asked.rate, mixes) if value is None else None
        for value, point in zip(found, series.points, strict=bool(series.points))
    ]
    lacks = [one for one in needed if one is not None]
    if lacks and len(lacks) == len(needed):
        told = f"no plan meets its SLO at any {asked.over}"
        raise UserError(f"series '{series.name}': {told}; {_need(asked, min(lacks))}")
    for place, point, one in zip(at, series.points, needed, strict=False):
        if one is not None:
            told = f"no plan meets {point.slo_ms:g} ms; {_need(asked, one)}"
            yield f"{series.name} at {asked.over} {place}: {told}"


def _need(asked: AskedFigure, slo_ms: float) -> str:
    if math.isinf(slo_ms):
        return f"at any SLO none reaches the rate {asked.rate:g}"
    return f"the smallest SLO that one meets is {slo_ms:g} ms"


def _value(asked: AskedFigure, system: str, point: FigurePoint) -> float | None:
    if asked.measure == DEVICES:
        return costs.devices_needed(point, system, asked.rate)
    if asked.measure == PRICE:
        return costs.least_price(point, system, asked.rate)
    if asked.measure == PLANNING:
        return costs.planning_ms(point)
    return best(point, system) or None
