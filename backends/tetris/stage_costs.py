"""What every possible stage costs, as arrays that the planner looks up.

A stage of layers i..j-1 on kind c works

    work[c, i, j] = s_i * t(i, j, c) + (1 - s_i) * fill(i, j, c)

milliseconds for each batch that enters the model: survivors are fused to whole batches, so that it
runs one for each 1 / s_i of them, and for those that left it fills in keys and values. t includes
what a batch costs outside the layers, which the whole model in one process has less of than a stage
in a process of its own. With m devices a stage keeps up with a batch every `work / m` milliseconds.
A batch takes a whole t(i, j, c) in it, and before that waits for at most the fills of one cycle:
`service[c, i, j] = t + (1 - s_i) * fill`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.tetris.profile import DeviceCluster, StageProfile
from harness.core.errors import UserError

SAME = 1e-12
"""Numbers so near to one another, relatively, differ by rounding alone."""
MOST_CANDIDATES = 5_000_000
MOST_STATES = 50_000

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StageCosts:
    """The stages of a model with L layers on K kinds of devices.

    work, service: (K, L, L + 1) float64, milliseconds at [kind, first layer, end]; infinite where
        there is no such stage: none begins where nobody is alive, nor inside the model without a
        ramp before it.
    alive: (L + 1,) share alive on entering a layer.
    transfer_ms: (L,) float64, of a batch over the cut before a layer; the first is 0.
    link_ms: (L,) float64, of those that cross this cut of each batch that enters the model: the
        survivors, and all of them where keys and values are filled behind it, since who has left
        sends a state, too.
    kinds, devices, prices: K names, counts and prices, in one order.
    """

    batch: int
    transfer_ms: Floats
    link_ms: Floats
    kinds: tuple[str, ...]
    devices: tuple[int, ...]
    prices: tuple[float, ...]
    alive: Floats
    work: Floats
    service: Floats

    @property
    def layers(self) -> int:
        """L."""
        return len(self.alive) - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Of arrays with a place for each choice of numbers of devices, 0 to all of each kind."""
        return tuple(count + 1 for count in self.devices)

    def needed(self, cycle_ms: float) -> Counts:
        """Fewest devices of kind c that keep layers i..j-1 within the cycle: (K, L, L + 1) int64,
        more than there are where no number does. A cut needs its link within the cycle."""
        counts = np.ceil(self.work * ((1 - SAME) / cycle_ms))
        shut = self.shut(cycle_ms)
        counts[:, shut] = np.inf
        counts[:, :, :-1][:, :, shut] = np.inf
        counts[counts > max(self.devices)] = max(self.devices) + 1
        return np.asarray(np.maximum(counts, 1), np.int64)

    def shut(self, cycle_ms: float) -> NDArray[np.bool_]:
        """Whether the link before a layer takes longer than the cycle: (L,), the first never."""
        return np.asarray(self.link_ms > cycle_ms * (1 + SAME))

    def waits(self, cycle_ms: float) -> Floats:
        """Longest wait before a stage that begins with layer i where survivors come evenly, (L,)
        float64: until a batch is there at all, or until they fill one, and the transfer."""
        with np.errstate(divide="ignore", over="ignore"):
            found = cycle_ms / self.alive[:-1] + self.transfer_ms
        found[0] = cycle_ms
        return np.asarray(found)

    def spent(self) -> Floats:
        """Cost of each choice of numbers of devices: `shape` float64."""
        counts = np.indices(self.shape)
        return np.asarray(np.tensordot(np.asarray(self.prices), counts, axes=1))

    def cycles(self, least_ms: float) -> Floats:
        """Every cycle time that a plan can have which is at least `least_ms`, and that one if it is
        above 0; ascending. A cycle is the time of a stage's devices or of a link."""
        begin, end = np.triu_indices(self.layers, 1, self.layers + 1)
        found = [np.append(self.link_ms[self.link_ms > least_ms], least_ms)]
        for work, count in zip(self.work, self.devices, strict=True):
            some = work[begin, end]
            some = np.unique(some[np.isfinite(some)])
            for m in range(1, count + 1):
                found.append(some[np.searchsorted(some, least_ms * m) :] / m)
        every = np.unique(np.concatenate(found))
        every = every[every > 0]
        apart = np.append(every[1:] > every[:-1] * (1 + SAME), True)
        return np.asarray(every[apart])


def stage_costs(
    profile: StageProfile, cluster: DeviceCluster, every_cut: bool = False
) -> StageCosts:
    """The costs of every stage; with `every_cut` only of those that have no ramp inside, so that a
    plan cuts at all of them. Raises `UserError` for a cluster too large to plan as a whole."""
    kinds = tuple(cluster.devices)
    devices = tuple(cluster.devices[kind] for kind in kinds)
    L = profile.layers
    choices = np.prod([count + 1.0 for count in devices])
    if choices > MOST_STATES or L * (L + 1) / 2 * sum(devices) > MOST_CANDIDATES:
        told = f"{sum(devices):,} devices of {len(devices)} kinds for {L} layers"
        raise UserError(f"{told}: too many to plan at once; plan an equal part of the cluster")
    alive = np.asarray(profile.survival)
    entering = alive[:-1, None]
    work, service = np.empty((2, len(kinds), L, L + 1))
    cut = np.ones(L + 1, bool)
    if profile.ramps is not None:
        cut[1:L] = np.isin(np.arange(1, L), profile.ramps)
    impossible: Any = np.tri(L, L + 1, dtype=bool) | (entering == 0) | ~(cut[:-1, None] & cut)
    if every_cut:
        passed = np.cumsum(cut)
        impossible |= passed - cut > passed[:-1, None]
    for place, kind in enumerate(kinds):
        time = _spans(profile.layer_ms[kind])
        time[:, :-1] += profile.ramp_ms[kind]
        whole = time[0, L]
        time += _of_batch(profile.stage_ms, kind)
        time[0] += _of_batch(profile.enter_ms, kind)
        time[0, L] = whole + _of_batch(profile.batch_ms, kind)
        fill = (1 - entering) * _spans(profile.fill_ms[kind])
        work[place] = np.where(impossible, np.inf, entering * time + fill)
        service[place] = np.where(impossible, np.inf, time + fill)
    prices = tuple(cluster.price[kind] for kind in kinds)
    moved = np.asarray(profile.transfer_ms)
    filled = np.any([profile.fill_ms[kind] for kind in kinds], axis=0)
    all_cross = np.logical_or.accumulate(filled[::-1])[::-1]
    link = moved * np.where(all_cross, 1.0, alive[:-1])
    return StageCosts(profile.batch, moved, link, kinds, devices, prices, alive, work, service)


def _of_batch(outside: Mapping[str, tuple[tuple[int, float], ...]], kind: str) -> float:
    """Milliseconds outside the layers at the whole batch; 0 where nobody measured them."""
    return outside[kind][-1][1] if kind in outside else 0.0


def _spans(values: tuple[float, ...]) -> Floats:
    """Sums of values i to j - 1 at [i, j], (L, L + 1). Each is added up from its own start, so that
    equal layers give equal sums."""
    L = len(values)
    found = np.zeros((L, L + 1))
    for begin in range(L):
        found[begin, begin + 1 :] = np.cumsum(values[begin:])
    return found
