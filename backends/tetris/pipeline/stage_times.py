"""How long a stage takes for any number of inputs, from a profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backends.tetris.profile import StageProfile
from harness.core.errors import UserError


class _ByInputs(dict[int, float]):
    """Times, or shares of one, by number of inputs, linear between those measured; reckoned when
    asked, since a batch may be larger than memory."""

    def __init__(self, measured: Sequence[tuple[int, float]]) -> None:
        self._counts, self._measured = zip(*measured, strict=True)

    def __missing__(self, inputs: int) -> float:
        self[inputs] = float(np.interp(inputs, self._counts, self._measured))
        return self[inputs]


class StageTimes:
    """t(layers, inputs) of every kind of device, in milliseconds.

    A profile tells layers at its batch B and, in `time_share`, what fewer inputs take of that;
    between its numbers of inputs time is linear, and below the least of them constant. Fills go
    with the layers, so that all have one curve; ramps, and what a batch costs outside of both, have
    their own, where the profile tells it.

    Raises:
        UserError: for a profile without `time_share` of a batch above 1.
    """

    def __init__(self, profile: StageProfile, where: str = "profile") -> None:
        if not profile.time_share and profile.batch > 1:
            told = "batches that shrink need the time of fewer inputs"
            raise UserError(f"{where}: the key 'time_share' is missing: {told}")
        self.profile = profile
        self._shares: dict[str, _ByInputs] = {}
        self._sums: dict[str, list[float]] = {}
        nothing = ((1, 0.0),)
        self._whole = {k: _ByInputs(profile.batch_ms.get(k, nothing)) for k in profile.layer_ms}
        self._staged = {k: _ByInputs(profile.stage_ms.get(k, nothing)) for k in profile.layer_ms}
        self._entered = {k: _ByInputs(profile.enter_ms.get(k, nothing)) for k in profile.layer_ms}
        self._ramps: dict[str, _ByInputs] = {}
        for kind, layers in profile.layer_ms.items():
            shares = profile.time_share.get(kind, ((1, 1.0),))
            self._shares[kind] = _ByInputs(shares)
            self._ramps[kind] = _ByInputs(profile.ramp_share.get(kind, shares))
            self._sums[kind] = np.concatenate([[0.0], np.cumsum(layers)]).tolist()

        filled = np.any(list(profile.fill_ms.values()), axis=0)
        behind = np.logical_or.accumulate(filled[::-1])[::-1]
        alive = np.asarray(profile.survival[:-1])
        crossing = np.divide(1.0, alive, out=np.ones(len(alive)), where=behind & (alive > 0))
        self._crossing: list[float] = crossing.tolist()

    def share(self, kind: str, inputs: int) -> float:
        """Time of 1 to B inputs over that of B."""
        return self._shares[kind][inputs]

    def stage_ms(self, kind: str, first: int, end: int, inputs: int) -> float:
        """Layers first..end-1 for 1 to B inputs in a process of their own, with the ramp unless
        they end the model, and what is outside of both."""
        whole = end - first == self.profile.layers
        outside = self.batch_ms(kind, inputs) if whole else self._staged[kind][inputs]
        if first == 0 and not whole:
            outside += self._entered[kind][inputs]
        return self.layers_ms(kind, first, end, inputs) + outside

    def batch_ms(self, kind: str, inputs: int) -> float:
        """What a batch costs outside layers and ramps where one process has the whole model."""
        return self._whole[kind][inputs]

    def layers_ms(self, kind: str, first: int, end: int, inputs: int) -> float:
        """Layers first..end-1 for 1 to B inputs, with the ramp unless they end the model."""
        sums = self._sums[kind]
        ramp = self.ramp_ms(kind, inputs) if end < self.profile.layers else 0.0
        return self._shares[kind][inputs] * (sums[end] - sums[first]) + ramp

    def ramp_ms(self, kind: str, inputs: int) -> float:
        """A ramp for 1 to B inputs."""
        return self._ramps[kind][inputs] * self.profile.ramp_ms[kind]

    def fill_ms(self, kind: str, first: int, end: int, inputs: float) -> float:
        """Keys and values of layers first..end-1 for inputs that left before: any number of them,
        in whole batches, so that it is proportional."""
        return inputs / self.profile.batch * sum(self.profile.fill_ms[kind][first:end])

    def transfer_ms(self, cut: int, inputs: int) -> float:
        """Moving the hidden states of so many inputs over the cut behind `cut` layers: proportional
        to their number. Where keys and values are filled behind it those that have left cross it
        too, in proportion to the inputs that go on."""
        crossing = inputs * self._crossing[cut]
        return self.profile.transfer_ms[cut] * crossing / self.profile.batch
