"""Simulated comparisons of a system with itself on a machine whose speed wanders.

The log of the machine's speed is an Ornstein-Uhlenbeck process: normal, with a correlation that
falls by e in each time constant. Systems that are all the same answer requests one after the other,
a trial each, in the order of a sweep; what is left of a ratio is what the machine did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.nouns import Load, Model, Trial, Workload
from harness.measure.turns import cell_by_cell

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

    def comparisons(
        self,
        repeats: int,
        time_constant_s: float,
        count: int,
        seed: int,
        *,
        systems: int = 2,
        cells: int = 1,
        rival: int = 1,
    ) -> Floats:
        """(count, repeats, requests) log ratios whose true mean is 0, of the system number `rival`
        to the first one, in the middle cell."""
        middle = cells // 2
        pooled = self.cells(repeats, time_constant_s, count, seed, (systems, cells, rival), middle)
        return pooled[:, 0]

    def cells(
        self,
        repeats: int,
        time_constant_s: float,
        count: int,
        seed: int,
        sweep: tuple[int, int, int],
        only: int | None = None,
    ) -> Floats:
        """(count, cells, repeats, requests) likewise of each cell, or of the `only` one. `sweep`:
        systems, cells, rival."""
        systems, cells, rival = sweep
        chance = np.random.default_rng([seed, repeats, round(10 * time_constant_s)])
        order = [
            (place, repeat, cell, system)
            for place, (repeat, cell, system) in enumerate(turns(systems, cells, repeats))
            if only in (None, cell) and system in (0, rival)
        ]
        places = np.array([place for place, *_ in order])
        others_s = np.diff(places, prepend=places[0] - 1) - 1.0
        others_s *= self.requests * self.request_s + self.between_trials_s
        steps = np.full(len(order) * self.requests, self.request_s)
        steps[:: self.requests] += self.between_trials_s + others_s
        kept = np.exp(-steps / time_constant_s)
        logs = chance.standard_normal((len(steps), count))
        for place in range(1, len(steps)):
            logs[place] *= np.sqrt(1 - kept[place] ** 2)
            logs[place] += kept[place] * logs[place - 1]
        logs = self.wander * logs + self.noise * chance.standard_normal(logs.shape)
        ratios = np.zeros((count, 1 if only is not None else cells, repeats, self.requests))
        trials = logs.T.reshape(count, len(order), self.requests)
        for turn, (_, repeat, cell, system) in enumerate(order):
            place = 0 if only is not None else cell
            ratios[:, place, repeat] += trials[:, turn] * (1 if system else -1)
        return ratios


def turns(systems: int, cells: int, repeats: int) -> list[tuple[int, int, int]]:
    """(repeat, cell, system) of a sweep's trials, in the order in which they are run."""
    trials = [
        Trial(
            backend="scripted",
            options={"system": system},
            model=Model("none"),
            workload=Workload("none"),
            load=Load("closed", concurrency=1),
            requests=1,
            max_new_tokens=1,
            seed=cell,
            repeat=repeat,
        )
        for system in range(systems)
        for cell in range(cells)
        for repeat in range(repeats)
    ]
    return [(one.repeat, one.seed, one.options["system"]) for one in cell_by_cell(trials)]
