"""A profile of a model on devices that nobody has at hand: a stated roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from backends.tetris.profile import DeviceCluster, StageProfile, cluster_from, profile_from

DIGITS = 6


@dataclass(frozen=True, slots=True)
class RooflineDevice:
    """A kind of device: its peak, the inputs up to which a layer takes no less time (launching
    kernels), and the price of one an hour."""

    flop_per_s: float
    filled_by: float
    price: float


@dataclass(frozen=True, slots=True, eq=False)
class Roofline:
    """A model with L layers on kinds of devices. A layer takes the arithmetic of its inputs, of
    `filled_by` of them at least.

    flop: L values: the operations of a layer for one input.
    state_bytes: L - 1 values: the hidden state of one input behind a layer.
    ramp: time of a ramp, over that of the model's mean layer.
    survival: as in `StageProfile`, with all ramps on.
    entropy: the threshold of entropy (nats, two labels) that `survival` belongs to.
    """

    flop: tuple[float, ...]
    state_bytes: tuple[float, ...]
    link_bytes_per_s: float
    devices: Mapping[str, RooflineDevice]
    ramp: float
    survival: tuple[float, ...]
    entropy: float

    @property
    def layers(self) -> int:
        """L."""
        return len(self.flop)

    def layer_ms(self, kind: str, inputs: int) -> list[float]:
        """Milliseconds of each layer, L values."""
        device = self.devices[kind]
        most = max(inputs, device.filled_by)
        return [1e3 * flop * most / device.flop_per_s for flop in self.flop]

    def told(self, batch: int) -> dict[str, Any]:
        """What `decodebench plan` and `simulate` are told of it at a batch: a profile's mapping."""
        whole = {kind: self.layer_ms(kind, batch) for kind in self.devices}
        moved = [1e3 * size * batch / self.link_bytes_per_s for size in self.state_bytes]
        moved = [round(ms, DIGITS) for ms in moved]
        return {
            "layers": self.layers,
            "batch": batch,
            "survival": [round(share, DIGITS) for share in self.survival],
            "layer_ms": {kind: [round(ms, DIGITS) for ms in each] for kind, each in whole.items()},
            "ramp_ms": {
                kind: round(self.ramp * sum(each) / self.layers, DIGITS)
                for kind, each in whole.items()
            },
            "transfer_ms": moved[0] if len(set(moved)) == 1 else moved,
            "time_share": {kind: self._shares(kind, batch) for kind in self.devices},
        }

    def profile(self, batch: int) -> StageProfile:
        """The same, checked."""
        return profile_from(self.told(batch), "profile")

    def cluster(self, devices: Mapping[str, int]) -> DeviceCluster:
        """So many devices with their prices, of kinds that it knows."""
        prices = {kind: self.devices[kind].price for kind in devices}
        told = {"devices": dict(devices), "price": prices}
        return cluster_from(told, "cluster", self.profile(1))

    def of_layers(self, layers: int) -> Roofline:
        """A model of so many layers like the first one of this one; survival falls as evenly."""
        last = self.survival[-1]
        return replace(
            self,
            flop=self.flop[:1] * layers,
            state_bytes=self.state_bytes[:1] * (layers - 1),
            survival=even_survival(layers, last),
        )

    def at_entropy(self, threshold: float) -> tuple[float, ...]:
        """Survival at another threshold of entropy. At a ramp that a share a passes at the usual
        one, an input that is surer than a share u of all has the entropy log(2) (1 - u)^p, with p
        such that it is the usual threshold at u = a."""
        most = math.log(2)
        found = [1.0]
        for alive in self.survival[1:]:
            if 0 < alive < 1:
                power = math.log(self.entropy / most) / math.log(1 - alive)
                alive = 1 - (threshold / most) ** (1 / power)
            found.append(alive)
        return tuple(np.minimum.accumulate(found).tolist())

    def _shares(self, kind: str, batch: int) -> dict[str, float]:
        floor = self.devices[kind].filled_by
        whole = max(batch, floor)
        return {str(n): round(max(n, floor) / whole, DIGITS) for n in range(1, batch + 1)}


def even_survival(layers: int, last: float) -> tuple[float, ...]:
    """Shares that fall evenly to the last, (layers + 1) values."""
    return tuple(1 - (1 - last) * n / layers for n in range(layers + 1))
