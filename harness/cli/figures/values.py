"""The values of a series, by what its figure is of."""

from __future__ import annotations

from backends.tetris.figures import costs, forecasts
from backends.tetris.figures.goodput import best
from backends.tetris.figures.point import FigurePoint
from backends.tetris.figures.shift import goodput_by_mix
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


def _value(asked: AskedFigure, system: str, point: FigurePoint) -> float | None:
    if asked.measure == DEVICES:
        return costs.devices_needed(point, system, asked.rate)
    if asked.measure == PRICE:
        return costs.least_price(point, system, asked.rate)
    if asked.measure == PLANNING:
        return costs.planning_ms(point)
    return best(point, system) or None
