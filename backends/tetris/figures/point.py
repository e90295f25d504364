"""One number of a figure: which system, on what, and who leaves where."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from backends.tetris.drift import EASY, HARD
from backends.tetris.figures.roofline import Roofline
from backends.tetris.pipeline.leaving import LeaveDecisions, drawn
from backends.tetris.profile import StageProfile
from backends.tetris.simulation.compare import MOST_REQUESTS
from harness.core.errors import UserError

Devices = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class FigurePoint:
    """A number's settings.

    clusters, batches, copies: of these the best is taken, for each system by itself; copies are
        pipelines side by side, each on an equal part of the cluster.
    requests: as many as are simulated at least; where batches or devices are many it is more.
    wrapper: ramps run at the ends of stages alone, and not behind all layers.
    entropy: another threshold than the model's; None: the model's.
    patience: an input leaves once so many ramps in a row agree (PABEE); None: by entropy.
    """

    model: Roofline
    clusters: tuple[Devices, ...]
    batches: tuple[int, ...]
    copies: tuple[int, ...]
    slo_ms: float
    requests: int
    wrapper: bool = True
    entropy: float | None = None
    patience: int | None = None
    layers: int | None = None

    def shape(self) -> Roofline:
        """The model, of `layers` layers where they are told."""
        return self.model if self.layers is None else self.model.of_layers(self.layers)

    def survival(self) -> tuple[float, ...]:
        """Shares alive with all ramps on, (L + 1) values."""
        model = self.shape()
        return model.survival if self.entropy is None else model.at_entropy(self.entropy)

    def profile(self, batch: int, staged: bool) -> StageProfile:
        """For the pipeline (`staged`) or a baseline. Without the wrapper, and with counters that
        run at each layer, a stage runs all of its ramps."""
        survival = self.survival()
        if self.patience is not None:
            survival = tuple(self.leaving(PATIENT_INPUTS).alive().tolist())
        found = replace(self.shape().profile(batch), survival=survival)
        every = not self.wrapper or self.patience is not None
        return all_ramps(found) if staged and every else found

    def asked(self, needed: int) -> int:
        """How many requests are simulated where so many are needed. Raises `UserError` where they
        are too many."""
        if needed > MOST_REQUESTS:
            told = f"{needed:,} requests needed, at most {MOST_REQUESTS:,} are simulated"
            raise UserError(f"{told}; expected fewer devices or smaller batches")
        return max(self.requests, needed)

    def leaving(self, count: int) -> LeaveDecisions:
        """Who leaves where. By patience it is so many ramps behind the one where the first of
        those that agree stands, which is where the input would leave by entropy."""
        found = drawn(self.survival(), count, 0)
        if self.patience is None:
            return found
        behind = found.depths() + self.patience - 1
        return LeaveDecisions(behind[:, None] <= np.arange(1, found.layers))


PATIENT_INPUTS = 20_000
"""From which survival by patience is counted."""


def all_ramps(model: StageProfile) -> StageProfile:
    """A ramp is part of its layer: it runs wherever the stages end."""
    layer_ms = {
        kind: (*(ms + model.ramp_ms[kind] for ms in layers[:-1]), layers[-1])
        for kind, layers in model.layer_ms.items()
    }
    return replace(model, layer_ms=layer_ms, ramp_ms=dict.fromkeys(model.ramp_ms, 0.0))


def mixed(layers: int, easy: float, count: int, seed: int) -> LeaveDecisions:
    """A mix with a share of easy inputs; each stays sure once it is."""
    random = np.random.default_rng(seed)
    leave = np.where(random.random(count) < easy, EASY, HARD)
    behind = random.geometric(leave)
    return LeaveDecisions(behind[:, None] <= np.arange(1, layers))
