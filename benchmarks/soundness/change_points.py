"""Does `history` find a step, and none where there is none? Simulated series, whose truth is known.

    python benchmarks/soundness/change_points.py [--series 300] [--points 30] [--quick]

For each kind of noise and each size of a step in the middle: the share of series in which a change
is found within two points of it, at the level of a history with one series and with twelve; and the
share of series without a step in which any is found. Wandering noise (a random part that keeps 0.8
of its last value) breaks the assumption, as a machine that drifts does: what then comes of the
level is told beside it. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np

from results.history.change_points import change_points
from results.metrics.arrays import Floats

SIGNIFICANCE = 0.05
STEPS = (0.0, 0.02, 0.05, 0.10)
NEAR = 2
Noise = Callable[[np.random.Generator, int], Floats]


def normal(spread: float) -> Noise:
    """Independent, of this relative standard deviation."""
    return lambda rng, n: spread * rng.normal(size=n)


def heavy(spread: float) -> Noise:
    """Independent, with outliers (Student's t, 3 degrees), of this standard deviation."""
    return lambda rng, n: spread / np.sqrt(3) * rng.standard_t(3, size=n)


def wandering(spread: float) -> Noise:
    """Each point keeps 0.8 of the last one's."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        values = np.empty(n)
        value = spread * rng.normal()
        for place in range(n):
            value = 0.8 * value + 0.6 * spread * rng.normal()
            values[place] = value
        return values

    return draw


NOISES = {
    "normal 1%": normal(0.01),
    "normal 2%": normal(0.02),
    "heavy tails 2%": heavy(0.02),
    "wandering 2%": wandering(0.02),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--series", type=int, default=300)
    parser.add_argument("--points", type=int, default=30)
    parser.add_argument("--quick", action="store_true", help="the least that it can do")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.series = 10
    result = {}
    for name, noise in NOISES.items():
        for among in (1, 12):
            level = SIGNIFICANCE / among
            found = [_share(noise, step, level, chosen.series, chosen.points) for step in STEPS]
            result[f"{name}, {among} series"] = found
            told = ", ".join(f"{s:.0%}: {f:.1%}" for s, f in zip(STEPS, found, strict=True))
            print(f"{name:15} level {level:.4f}  found of steps of {told}", flush=True)
    print(json.dumps(result))


def _share(noise: Noise, step: float, level: float, series: int, points: int) -> float:
    rng = np.random.default_rng(0)
    middle, hits = points // 2, 0
    for _ in range(series):
        values = 1 + noise(rng, points)
        values[middle:] *= 1 + step
        found = [one.place for one in change_points(values, level)]
        hits += any(abs(place - middle) <= NEAR for place in found) if step else bool(found)
    return hits / series


if __name__ == "__main__":
    main()
