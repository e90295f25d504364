"""Many values of one trial in a few numbers."""

from __future__ import annotations

import math

import numpy as np

from results.metrics.arrays import Floats

PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0}
SUFFIXES = (*PERCENTILES, "mean")
"""What a name gets for each of the numbers."""


def describe(values: Floats | None, name: str) -> dict[str, float | None]:
    """NAME_p50, NAME_p95, NAME_p99 (numpy's linear interpolation) and NAME_mean of the defined
    values; None when there are none."""
    ascending = _defined(values)
    found: dict[str, float | None] = {
        f"{name}_{suffix}": percentile(ascending, share) for suffix, share in PERCENTILES.items()
    }
    return {**found, f"{name}_mean": float(ascending.mean()) if len(ascending) else None}


def mean(values: Floats) -> float | None:
    """The NAME_mean of `describe`, to the last digit: the values are added in ascending order."""
    ascending = _defined(values)
    return float(ascending.mean()) if len(ascending) else None


def percentile(ascending: Floats, share: float) -> float | None:
    """`numpy.percentile` with its default, linear method, for values that are sorted already."""
    if not len(ascending):
        return None
    place = share / 100 * (len(ascending) - 1)
    below = math.floor(place)
    low, high = float(ascending[below]), float(ascending[min(below + 1, len(ascending) - 1)])
    return low + (high - low) * (place - below)


def _defined(values: Floats | None) -> Floats:
    return np.sort(values[~np.isnan(values)]) if values is not None else np.empty(0)
