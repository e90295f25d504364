"""What the gate can test: a metric of the registry by its name, or the answers themselves.

| form | values | compared by |
|---|---|---|
| request | one a request: `tpot_s` | log of the ratio, paired on the request |
| trial | one a trial: `output_tok_per_s`, `ttft_s_p99` | log of the ratio |
| count | one a trial, mostly 0: `n_errors` | difference |
| score | one a request, between 0 and 1: `exact_match` | difference, paired on the request |
| answers | `consistency`: whether the answer is BASE's | difference to BASE against itself |
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.core.errors import UserError, nearest
from results import registry
from results.metrics.arrays import Floats
from results.metrics.distribution import SUFFIXES, describe
from results.registry.metric import Metric, TrialInputs

CONSISTENCY, QUALITY = "consistency", "quality"
"""Names of a gate file beside the registry's. `quality` stands for every task score."""
_BY_THE_CLOCK = frozenset({"time", "rates", "resources", "batches", "prediction"})
"""Sections of the registry whose numbers differ from repeat to repeat."""


@dataclass(frozen=True, slots=True)
class GateQuantity:
    """One thing to be tested."""

    name: str
    form: Literal["request", "trial", "count", "score", "answers"]
    better: Literal["larger", "smaller", ""]
    unit: str = ""
    by_the_clock: bool = False
    """Whether the machine has a part in it, so that one repeat says nothing of the next."""
    metric: Metric | None = None
    suffix: str = ""
    """Which number of a distribution, for form "trial"."""

    @property
    def is_ratio(self) -> bool:
        """Whether its margin is relative (0.05 is 5%) and not absolute."""
        return self.form in ("request", "trial")

    @property
    def is_of_a_trial(self) -> bool:
        """Whether a trial has one number, and not each of its requests."""
        return self.form in ("trial", "count")

    @property
    def is_of_a_load(self) -> bool:
        """Whether trials of one engine share it, so that it was measured once for all of them."""
        return self.metric is not None and self.metric.of_a_load

    @property
    def is_of_whole_answers(self) -> bool:
        """Whether answers of another length make it another matter."""
        return self.metric is not None and self.metric.unequal_work


@functools.cache
def quantities() -> Mapping[str, GateQuantity]:
    """Everything that can be tested, by name."""
    found = {CONSISTENCY: GateQuantity(CONSISTENCY, "answers", "larger")}
    for metric in registry.METRICS:
        for quantity in _of(metric):
            found.setdefault(quantity.name, quantity)
    return found


def scores() -> tuple[str, ...]:
    """The task scores, which `quality` stands for."""
    return tuple(metric.name for metric in registry.scores())


def quantity(name: str, where: str) -> GateQuantity:
    """The one of this name. Raises `UserError`, which begins with `where`."""
    known = quantities()
    if name not in known:
        raise UserError(f"{where}: unknown metric '{name}'; {nearest(name, [*known, QUALITY])}")
    return known[name]


def per_request(quantity: GateQuantity, inputs: TrialInputs) -> Floats:
    """(R,) values of form "request" or "score", NaN where undefined or infinite."""
    requests = inputs.requests
    undefined = np.full(len(requests), np.nan)
    if quantity.form == "score":
        return requests.scores.get(quantity.name, undefined)
    assert quantity.metric is not None
    assert quantity.metric.formula is not None
    values = np.asarray(quantity.metric.formula(inputs), float)
    values = np.where(np.isinf(values), np.nan, values)
    if quantity.metric.each == "request":
        return values
    undefined[requests.sampled] = values
    return undefined


def of_the_trial(quantity: GateQuantity, inputs: TrialInputs) -> float | None:
    """The value of form "trial" or "count"; None where undefined or infinite."""
    metric = quantity.metric
    assert metric is not None
    assert metric.formula is not None
    found = metric.formula(inputs)
    if quantity.suffix:
        found = describe(found, "of")[f"of_{quantity.suffix}"]
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    return float(found) if is_number and not math.isinf(found) else None


def _of(metric: Metric) -> list[GateQuantity]:
    if metric.formula is None or metric.needs in ("reference", "native"):
        return []
    clock = metric.section in _BY_THE_CLOCK
    if metric.needs == "scores":
        return [GateQuantity(metric.name, "score", metric.better, metric=metric)]
    if not metric.each:
        is_count = metric.section == "counts" and metric.better == "smaller"
        form: Literal["trial", "count"] = "count" if is_count else "trial"
        return [GateQuantity(metric.name, form, metric.better, metric.unit, clock, metric)]
    numbers = [
        GateQuantity(
            f"{metric.name}_{end}", "trial", metric.better, metric.unit, clock, metric, end
        )
        for end in SUFFIXES
    ]
    if metric.each in ("sample", "request"):
        own = GateQuantity(metric.name, "request", metric.better, metric.unit, clock, metric)
        return [own, *numbers]
    return numbers
