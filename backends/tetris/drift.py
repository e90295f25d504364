"""Workloads whose difficulty drifts, and survival on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from backends.tetris.survival import Floats

DRIFTS: dict[str, Callable[[Floats], Floats]] = {
    "steady": lambda x: np.full_like(x, 0.5),
    "slope": lambda x: 0.8 - 0.6 * x,
    "steps": lambda x: np.select([x < 1 / 3, x < 2 / 3], [0.8, 0.5], 0.2),
    "wave": lambda x: 0.5 + 0.3 * np.sin(6 * np.pi * x),
}
"""Share of easy inputs over the run, from 0 to 1. `steps` is TETRIS's figure 11."""
EASY, HARD = 0.6, 0.05
"""Share of those alive that leave at each ramp."""


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
