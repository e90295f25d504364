"""What the planner is told: a model's measured layers, the devices there are, and what is wanted.

Each is made from plain mappings (of a JSON or YAML file) and refuses what makes no sense, so that
the planner may trust every number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from backends.tetris.told_numbers import (
    MOST_BATCH,
    ByInputs,
    told_count,
    told_kinds,
    told_number,
    told_shares,
    told_times,
)
from harness.core.errors import UserError, nearest

MOST_LAYERS = 1_000
LEAST_MS = 1e-9
LEAST_RATE = 1e-6
PROFILE_KEYS = ("layers", "batch", "survival", "layer_ms", "ramp_ms", "transfer_ms")
OPTIONAL_KEYS = (
    "fill_ms",
    "time_share",
    "ramp_share",
    "ramps",
    "batch_ms",
    "stage_ms",
    "enter_ms",
)
CLUSTER_KEYS = ("devices", "price")


@dataclass(frozen=True, slots=True)
class StageProfile:
    """A model with L layers at batch B. Times are milliseconds; kinds are names of devices.

    survival: share of a batch alive on entering layer i, and last after the model; L + 1 values
        from 1 that never rise.
    layer_ms, fill_ms: L values of each kind: a layer for B inputs, and the keys and values alone
        that it needs of B inputs that have left.
    ramp_ms: the exit check of B inputs at a stage's end, by kind.
    transfer_ms: moving the hidden states of B inputs over a cut, L values at the layer behind it;
        the first is 0, since no cut is before the model.
    time_share: by kind, ascending (inputs, time of so many relative to that of B); the last is B's
        and 1. Empty where batches smaller than B were not measured: a plan needs none.
    ramp_share: the same of a ramp alone, which has a curve of its own where most of it does not go
        with the inputs; empty: that of the layers.
    ramps: ascending layers (1..L-1) behind which a ramp stands, and so a cut may; None: all.
    batch_ms, stage_ms, enter_ms: by kind, ascending (inputs, time outside the layers and the ramp):
        of a batch through the whole model in one process, through a stage that has a process of its
        own, and, in the stage that has the first layer, before that. The last is B's. Empty where
        they were not measured: none is counted then.
    """

    layers: int
    batch: int
    survival: tuple[float, ...]
    layer_ms: Mapping[str, tuple[float, ...]]
    ramp_ms: Mapping[str, float]
    transfer_ms: tuple[float, ...]
    fill_ms: Mapping[str, tuple[float, ...]]
    time_share: ByInputs = field(default_factory=dict)
    ramps: tuple[int, ...] | None = None
    batch_ms: ByInputs = field(default_factory=dict)
    stage_ms: ByInputs = field(default_factory=dict)
    enter_ms: ByInputs = field(default_factory=dict)
    ramp_share: ByInputs = field(default_factory=dict)

    def ramps_before(self, end: int) -> list[int]:
        """Layers (1..end-1, ascending) behind which a ramp stands."""
        ramps = range(1, self.layers) if self.ramps is None else self.ramps
        return [one for one in ramps if one < end]


@dataclass(frozen=True, slots=True)
class DeviceCluster:
    """How many devices of each kind there are, and the price of one (any currency and period)."""

    devices: Mapping[str, int]
    price: Mapping[str, float]

    def names(self) -> list[str]:
        """Of all devices: KIND-0, KIND-1, ..."""
        return [f"{kind}-{n}" for kind, count in self.devices.items() for n in range(count)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a plan has to meet: `slo_ms` less `slack_ms` of latency, at most `budget` of cost, and
    `rate` requests a second arriving (None: as many as are asked for). With a `target` in requests
    a second the plan is the cheapest that reaches it; else it is the one of the highest goodput.

    Raises:
        UserError: for numbers out of range, named as on the command line.
    """

    slo_ms: float
    slack_ms: float = 0.0
    rate: float | None = None
    budget: float | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("--slo-ms", self.slo_ms, "above 0"),
            ("--slack-ms", self.slack_ms, "0 or more"),
            ("--rate", self.rate, "above 0"),
            ("--budget", self.budget, "0 or more"),
            ("--target", self.target, "above 0"),
        ):
            if value is None:
                continue
            if not math.isfinite(value) or value < 0 or (value == 0 and least == "above 0"):
                raise UserError(f"{name}: expected a number {least}, found {value:g}")
        for name, value in (("--rate", self.rate), ("--target", self.target)):
            if value is not None and value < LEAST_RATE:
                raise UserError(
                    f"{name}: expected {LEAST_RATE:g} a second or more, found {value:g}"
                )


def profile_from(told: Any, where: str) -> StageProfile:
    """A profile from its mapping. Raises `UserError`, which begins with `where`, for unknown and
    missing keys, wrong lengths, negative times and a survival that no batch can have or that falls
    where no ramp stands."""
    told = _mapping(told, where, PROFILE_KEYS, OPTIONAL_KEYS)
    layers = told_count(told["layers"], f"{where}: layers", 1, MOST_LAYERS)
    layer_ms = _by_kind(told["layer_ms"], f"{where}: layer_ms", layers)
    ramp = told_kinds(told["ramp_ms"], f"{where}: ramp_ms", layer_ms)
    fill = told.get("fill_ms", [0.0] * layers)
    if isinstance(fill, list):
        fill = dict.fromkeys(layer_ms, fill)
    else:
        told_kinds(fill, f"{where}: fill_ms", layer_ms)
    batch = told_count(told["batch"], f"{where}: batch", 1, MOST_BATCH)
    survival = _survival(told["survival"], f"{where}: survival", layers)
    ramps = _ramps(told.get("ramps"), f"{where}: ramps", layers)
    _check_exits(survival, ramps, f"{where}: survival")
    return StageProfile(
        layers=layers,
        batch=batch,
        survival=survival,
        layer_ms=layer_ms,
        ramp_ms={k: told_number(v, f"{where}: ramp_ms of '{k}'") for k, v in ramp.items()},
        transfer_ms=_transfers(told["transfer_ms"], f"{where}: transfer_ms", layers),
        fill_ms=_by_kind(fill, f"{where}: fill_ms", layers, zero=True),
        time_share=told_shares(told.get("time_share"), f"{where}: time_share", layer_ms, batch),
        ramps=ramps,
        batch_ms=told_times(told.get("batch_ms"), f"{where}: batch_ms", layer_ms, batch),
        stage_ms=told_times(told.get("stage_ms"), f"{where}: stage_ms", layer_ms, batch),
        enter_ms=told_times(told.get("enter_ms"), f"{where}: enter_ms", layer_ms, batch),
        ramp_share=told_shares(told.get("ramp_share"), f"{where}: ramp_share", layer_ms, batch),
    )


def cluster_from(told: Any, where: str, profile: StageProfile) -> DeviceCluster:
    """A cluster from its mapping, whose kinds `profile` knows; kinds of 0 devices are left out.
    Raises `UserError`, which begins with `where`, for a kind without profile or price, negative
    prices and counts, and a cluster without any device."""
    told = _mapping(told, where, CLUSTER_KEYS)
    counts = told_kinds(told["devices"], f"{where}: devices")
    prices = told_kinds(told["price"], f"{where}: price", counts)
    devices, price = {}, {}
    for kind, value in counts.items():
        count = told_count(value, f"{where}: devices of '{kind}'", 0, 2**31)
        if kind not in profile.layer_ms:
            near = nearest(kind, profile.layer_ms)
            raise UserError(f"{where}: the profile has no times of device kind '{kind}'; {near}")
        price_of_one = told_number(prices[kind], f"{where}: price of '{kind}'")
        if count:
            devices[kind], price[kind] = count, price_of_one
    if not devices:
        raise UserError(f"{where}: devices: not enough: a plan needs at least 1, found none")
    return DeviceCluster(devices, price)


def _mapping(
    told: Any, where: str, needed: Sequence[str], optional: Sequence[str] = ()
) -> Mapping[str, Any]:
    if not isinstance(told, Mapping):
        raise UserError(f"{where}: expected a mapping with the keys {', '.join(needed)}")
    for key in told:
        if key not in (*needed, *optional):
            near = nearest(str(key), (*needed, *optional))
            raise UserError(f"{where}: unknown key '{key}'; {near}")
    for key in needed:
        if key not in told:
            raise UserError(f"{where}: the key '{key}' is missing")
    return told


def _by_kind(
    told: Any, where: str, layers: int, zero: bool = False
) -> dict[str, tuple[float, ...]]:
    found = {}
    for kind, values in told_kinds(told, where).items():
        found[kind] = _values(values, f"{where} of '{kind}'", layers, "one for each layer")
        if not zero and min(found[kind]) < LEAST_MS:
            raise UserError(
                f"{where} of '{kind}': expected times above 0, found {min(found[kind])}"
            )
    if not found:
        raise UserError(f"{where}: expected at least one device kind")
    return found


def _values(told: Any, where: str, count: int, what: str) -> tuple[float, ...]:
    if not isinstance(told, list) or len(told) != count:
        found = f"{len(told)} values" if isinstance(told, list) else f"'{told}'"
        raise UserError(f"{where}: expected a list of {count} values, {what}, found {found}")
    return tuple(told_number(value, f"{where}[{place}]") for place, value in enumerate(told))


def _transfers(told: Any, where: str, layers: int) -> tuple[float, ...]:
    """One time for all cuts, or one for each."""
    if isinstance(told, list):
        return (0.0, *_values(told, where, layers - 1, "one for each cut"))
    return (0.0, *[told_number(told, where)] * (layers - 1))


def _ramps(told: Any, where: str, layers: int) -> tuple[int, ...] | None:
    if told is None:
        return None
    if not isinstance(told, list):
        raise UserError(f"{where}: expected a list of layers, found '{told}'")
    found = tuple(told_count(one, f"{where}[{n}]", 1, layers - 1) for n, one in enumerate(told))
    if any(before >= behind for before, behind in pairwise(found)):
        raise UserError(f"{where}: expected ascending layers, found {told}")
    return found


def _survival(told: Any, where: str, layers: int) -> tuple[float, ...]:
    what = "the share alive on entering each layer and after the last"
    values = _values(told, where, layers + 1, what)
    if values[0] != 1:
        raise UserError(f"{where}[0]: expected 1, all of a batch, found {values[0]:g}")
    for place in range(1, layers + 1):
        if values[place] > values[place - 1]:
            rise = f"{values[place - 1]:g} to {values[place]:g}"
            raise UserError(f"{where}[{place}]: survival never rises with depth, found {rise}")
    return values


def _check_exits(survival: Sequence[float], ramps: Sequence[int] | None, where: str) -> None:
    """Nobody leaves where no ramp stands: such exits would cost nothing."""
    if ramps is None:
        return
    for place, (before, behind) in enumerate(pairwise(survival[:-1]), 1):
        if behind < before and place not in ramps:
            expected = f"expected {before:g} still, as no ramp stands behind layer {place}"
            raise UserError(f"{where}[{place}]: {expected}, found {behind:g}")
