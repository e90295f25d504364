"""What early predictions should have gained: counted passes at the costs that the backend measured.

A backend with exits stores what its passes took before the first trial (`BackendInfo.measured`),
and `exit_layers` and `max_drafts` among its options. With the counts of `results.metrics.work` they
give the time that a request's passes take, and what plain decoding of the same tokens takes. The
quotient is the speed-up that the algorithm alone explains: for one request at a time, without
anything that the process does between passes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from harness.core.nouns import BackendInfo
from harness.core.pass_costs import StepCosts, costs_from_json
from results.metrics.arrays import Floats, RequestArrays
from results.metrics.latency import later_tokens, tpot_s

NAMES = ("predicted_speedup", "predicted_speedup_one_row", "pass_time_share")


def predictions(
    requests: RequestArrays | None, backend: BackendInfo | None
) -> dict[str, float | None]:
    """The metrics of `NAMES` for one trial, geometric means over its requests; None where the
    backend has no exits or no costs.

    `predicted_speedup`: plain decoding's cost of the tokens / the cost of the passes counted.
    `predicted_speedup_one_row`: the same if rows beyond a pass's first cost nothing.
    `pass_time_share`: the cost of the passes / the measured decode time.
    """
    told = None if backend is None else _told(backend)
    if requests is None or told is None or "steps" not in requests.counts:
        return dict.fromkeys(NAMES)
    costs, layers, max_drafts = told
    spent = costs.spent(
        _count(requests, "steps"),
        [_count(requests, f"exits_layer_{layer}") for layer in layers],
        [_count(requests, f"checks_layer_{layer}") for layer in layers],
        max_drafts,
    )
    one_row, more = (microseconds[requests.sampled] for microseconds in spent)
    tokens = _tokens(requests)
    measured = tpot_s(requests) * tokens * 1e6
    values = (
        _geometric_mean(costs.per_token() * tokens, one_row + more),
        _geometric_mean(costs.per_token() * tokens, one_row),
        _geometric_mean(one_row + more, measured),
    )
    return dict(zip(NAMES, values, strict=True))


def _told(backend: BackendInfo) -> tuple[StepCosts, list[int], int] | None:
    """Costs, exit layers and max_drafts; None where they are absent or do not fit."""
    told, layers = backend.measured.costs, backend.options.get("exit_layers")
    if not isinstance(told, Mapping) or not isinstance(layers, Sequence):
        return None
    try:
        costs, max_drafts = costs_from_json(told), int(backend.options["max_drafts"])
        exits = [int(layer) for layer in layers]
    except (KeyError, TypeError, ValueError):
        return None
    fits = len(exits) == len(costs.exit_heads) and max_drafts >= 1 and costs.per_token() > 0
    return (costs, exits, max_drafts) if fits else None


def _tokens(requests: RequestArrays) -> Floats:
    """(K,) tokens that the counted passes committed, of each sampled request."""
    if "step_tokens" in requests.counts:
        return requests.counts["step_tokens"][requests.sampled]
    return later_tokens(requests)


def _count(requests: RequestArrays, name: str) -> Floats:
    return np.nan_to_num(requests.counts.get(name, np.zeros(len(requests))))


def _geometric_mean(above: Floats, below: Floats) -> float | None:
    usable = (above > 0) & (below > 0)
    if not usable.any():
        return None
    return math.exp(float(np.log(above[usable] / below[usable]).mean()))
