"""Survival by window, measured and as it was forecast."""

from __future__ import annotations

from functools import cache

import numpy as np

from backends.tetris.drift import drifting
from backends.tetris.survival import HISTORY, LEAST_WINDOWS, Floats, forecast

MEASURED, ARIMA, LAST_VALUE = "measured", "arima", "last value"
FORECASTS = (MEASURED, ARIMA, LAST_VALUE)
RAMPS = 1


def survival_by_window(
    drift: str, windows: tuple[int, ...], inputs: int, system: str
) -> list[float]:
    """The share that passes the first ramp in each of some windows, counted from 1: measured of so
    many inputs, forecast from the windows before it, or as in the last one. The workload drifts as
    `drift.DRIFTS` says, over as many windows as the last one asked for."""
    history = _history(drift, windows[-1], inputs)
    if system == MEASURED:
        return [float(history[window - 1, 0]) for window in windows]
    if system == LAST_VALUE:
        return [float(history[window - 2, 0]) for window in windows]
    return [
        float(forecast(history[max(window - 1 - HISTORY, 0) : window - 1])[0]) for window in windows
    ]


def forecast_error(drift: str, windows: int, inputs: int, system: str) -> float:
    """Mean absolute error over the windows from the first that can be forecast on."""
    asked = tuple(range(LEAST_WINDOWS + 1, windows + 1))
    measured, guessed = (
        np.asarray(survival_by_window(drift, asked, inputs, one)) for one in (MEASURED, system)
    )
    return float(np.abs(guessed - measured).mean())


@cache
def _history(drift: str, windows: int, inputs: int) -> Floats:
    return drifting(drift, windows, RAMPS, inputs, 0)
