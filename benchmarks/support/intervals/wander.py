"""Simulated comparisons of a system with itself on a machine whose speed wanders.

The log of the machine's speed is an Ornstein-Uhlenbeck process: normal, with a correlation that
falls by e in each time constant. Two systems that are the same answer requests one after the other,
a trial each, in the order A B, B A, A B; what is left of the ratio is what the machine did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TIME_CONSTANTS_S = (0.2, 0.6, 2.0, 6.0, 12.0, 20.0, 60.0)
REPEATS = (3, 4, 5)


@dataclass(frozen=True, slots=True)
class WanderingMachine:
    """What is simulated; times in seconds, spreads of log times."""

    requests: int = 24
    request_s: float = 0.25
    between_trials_s: float = 0.5
    wander: float = 0.05
    noise: float = 0.01
    """Of one measurement, beside the wander."""

    def comparisons(self, repeats: int, time_constant_s: float, count: int, seed: int) -> Floats:
        """(count, repeats, requests) log ratios whose true mean is 0."""
        chance = np.random.default_rng([seed, repeats, round(10 * time_constant_s)])
        steps = np.full(2 * repeats * self.requests, self.request_s)
        steps[:: self.requests] += self.between_trials_s
        kept = np.exp(-steps / time_constant_s)
        logs = chance.standard_normal((len(steps), count))
        for place in range(1, len(steps)):
            logs[place] *= np.sqrt(1 - kept[place] ** 2)
            logs[place] += kept[place] * logs[place - 1]
        logs = self.wander * logs + self.noise * chance.standard_normal(logs.shape)
        trials = logs.T.reshape(count, repeats, 2, self.requests)
        ratios: Floats = trials[:, :, 1] - trials[:, :, 0]
        ratios[:, 1::2] *= -1
        return ratios
