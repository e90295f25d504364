"""Workloads whose difficulty drifts, and how well survival on them is forecast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from backends.tetris.survival import HISTORY, LEAST_WINDOWS, ORDERS, Floats, forecast

DRIFTS: dict[str, Callable[[Floats], Floats]] = {
    "steady": lambda x: np.full_like(x, 0.5),
    "slope": lambda x: 0.8 - 0.6 * x,
    "steps": lambda x: np.select([x < 1 / 3, x < 2 / 3], [0.8, 0.5], 0.2),
    "wave": lambda x: 0.5 + 0.3 * np.sin(6 * np.pi * x),
}
"""Share of easy inputs over the run, from 0 to 1. `steps` is TETRIS's figure 11."""
EASY, HARD = 0.6, 0.05
"""Share of those alive that leave at each ramp."""


@dataclass(frozen=True, slots=True)
class ForecastErrors:
    """Mean absolute errors of survival, all ramps and forecasts alike, and their ratio."""

    arima: float
    last_value: float
    forecasts: int

    @property
    def ratio(self) -> float:
        """ARIMA's over the last value's; below 1 the model pays. NaN where both are 0."""
        return self.arima / self.last_value if self.last_value else float("nan")


def drifting(kind: str, windows: int, ramps: int, inputs: int, seed: int) -> Floats:
    """Measured survival by window and ramp, (windows, ramps) float64, of a mix of easy and hard
    inputs whose shares drift as `DRIFTS` says; `inputs` are drawn for each window.

    Raises:
        KeyError: for an unknown kind.
    """
    random = np.random.default_rng(seed)
    easy = DRIFTS[kind](np.linspace(0.0, 1.0, windows))
    depth = np.arange(1, ramps + 1)
    found = np.empty((windows, ramps))
    for window, share in enumerate(easy):
        leave = np.where(random.random(inputs) < share, EASY, HARD)
        left_at = random.geometric(leave)
        found[window] = (left_at[:, None] > depth).mean(axis=0)
    return found


def forecast_errors(
    history: Floats,
    first: int = LEAST_WINDOWS,
    window: int = HISTORY,
    orders: Sequence[tuple[int, int, int]] = ORDERS,
) -> ForecastErrors:
    """Each window from `first` on is forecast from the `window` ones before it: how far ARIMA and
    the last value are from what was measured. `history` is (W, R) survival.

    Raises:
        ValueError: for a history without a window to forecast.
    """
    if not 0 < first < len(history):
        raise ValueError(f"{len(history)} windows: expected more than {first}")
    ours, naive = [], []
    for place in range(first, len(history)):
        ours.append(forecast(history[max(place - window, 0) : place], 1, orders) - history[place])
        naive.append(history[place - 1] - history[place])
    arima, last_value = (float(np.mean(np.abs(found))) for found in (ours, naive))
    return ForecastErrors(arima, last_value, len(ours))
