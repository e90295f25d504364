"""What was said of the next window's survival, beside what came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reports.cells import Cell
from results.metrics.arrays import Floats
from results.metrics.survival import SurvivalSeries

MOST_RAMPS = 3
"""Of a cell: those where most leave."""


class NextWindow(NamedTuple):
    """Says the survival of a window from those before it alone."""

    ahead: Callable[[Floats], Floats]
    """(W, R) windows -> (R,) the next one's."""
    least: int
    """With fewer windows before it nothing but the last value can be said."""
    name: str
    """For people."""


LAST_VALUE = NextWindow(lambda history: history[-1], 1, "the last value")


class WindowErrors(NamedTuple):
    """Mean absolute differences from what was measured, shares."""

    windows: int
    last_value: float
    by_chance: float
    """What counting so few in each window comes to, whatever was said."""
    forecast: float | None
    """None: no window has enough before it."""


@dataclass(frozen=True, slots=True)
class RampForecast:
    """A ramp of a cell in one trial, W windows."""

    cell: Cell
    series: SurvivalSeries
    place: int
    """Of the ramp among the series'."""
    said: Floats
    """(W,): NaN where too few windows are before one."""
    leave: float
    """Of all that were counted, the share that this ramp lets go."""

    @property
    def layer(self) -> int:
        """With the ramp behind it."""
        return self.series.ramps[self.place]

    @property
    def alive(self) -> Floats:
        """(W,) as measured."""
        return np.asarray(self.series.alive[:, self.place])

    @property
    def mean(self) -> float:
        """The share of all that were counted."""
        return float(np.average(self.alive, weights=self.series.counted))

    def errors(self) -> WindowErrors:
        """Over the windows of which something was forecast; without any, over all but the first."""
        told = ~np.isnan(self.said)
        some = told if told.any() else np.arange(len(told)) > 0
        steps = np.abs(np.diff(self.alive, prepend=self.alive[:1]))
        return WindowErrors(
            int(some.sum()),
            float(steps[some].mean()),
            float(self.series.by_chance()[some, self.place].mean()),
            float(np.abs(self.said - self.alive)[some].mean()) if told.any() else None,
        )


def ramp_forecasts(cell: Cell, series: SurvivalSeries, teller: NextWindow) -> list[RampForecast]:
    """The ramps of a cell, ascending, `MOST_RAMPS` at most."""
    means = np.average(series.alive, axis=0, weights=series.counted)
    leave = -np.diff(means, prepend=1.0)
    chosen = np.sort(np.argsort(-leave, kind="stable")[:MOST_RAMPS])
    alive = series.alive[:, chosen]
    said = np.full(alive.shape, np.nan)
    for window in range(teller.least, len(said)):
        said[window] = teller.ahead(alive[:window])
    return [
        RampForecast(cell, series, int(place), said[:, column], float(leave[place]))
        for column, place in enumerate(chosen)
    ]
