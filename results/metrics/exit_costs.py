"""What early predictions should have gained: counted passes at the costs that the backend measured.

A backend with exits stores, under `backend.options`, `exit_layers` and `costs`: microseconds of one
pass of each segment (`segment_us`), of each exit head (`exit_head_us`) and of the final head
(`final_head_us`), measured before the first trial; `segment_us_full` and `final_head_us_full` are
of max_drafts + 1 rows. With the counts of `results.metrics.work` they give the time that a
request's passes take, and what plain decoding of the same tokens takes. The quotient is the
speed-up that the algorithm alone explains: for one request at a time, without anything that the
process does between passes.

Every position goes through every segment once. Those that leave at an exit go through the later
segments as one row more of somebody's pass, and that is what they are charged there: the full cost
less the cost of one row, divided by max_drafts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from results.metrics.arrays import Floats, RequestArrays
from results.metrics.latency import later_tokens, tpot_s

NAMES = ("predicted_speedup", "predicted_speedup_one_row", "pass_time_share")


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Microseconds, as the backend measured them; `layers` are the S - 1 exits of S segments."""

    layers: tuple[int, ...]
    segments: tuple[float, ...]
    segments_full: tuple[float, ...]
    exit_heads: tuple[float, ...]
    final_head: float
    final_head_full: float
    max_drafts: int
    plain: float
    """Plain decoding, per token: `plain_us` where the backend measured it, else the sum."""


def pass_costs(options: Mapping[str, Any]) -> PassCosts | None:
    """The costs among the options that took effect; None where they are absent or do not fit."""
    costs, layers = options.get("costs"), options.get("exit_layers")
    if not isinstance(costs, Mapping) or not isinstance(layers, Sequence):
        return None
    try:
        segments = tuple(float(x) for x in costs["segment_us"])
        full = tuple(float(x) for x in costs.get("segment_us_full") or segments)
        heads = tuple(float(x) for x in costs["exit_head_us"])
        final = float(costs["final_head_us"])
        found = PassCosts(
            layers=tuple(int(x) for x in layers),
            segments=segments,
            segments_full=full,
            exit_heads=heads,
            final_head=final,
            final_head_full=float(costs.get("final_head_us_full") or final),
            max_drafts=int(options["max_drafts"]),
            plain=float(costs.get("plain_us") or sum(segments) + final),
        )
    except (KeyError, TypeError, ValueError):
        return None
    fits = len(found.layers) == len(heads) == len(segments) - 1 == len(full) - 1
    return found if fits and found.max_drafts >= 1 and found.plain > 0 else None


def predictions(
    requests: RequestArrays | None, options: Mapping[str, Any]
) -> dict[str, float | None]:
    """The metrics of `NAMES` for one trial, geometric means over its requests; None where the
    backend has no exits or no costs.

    `predicted_speedup`: plain decoding's cost of the tokens / the cost of the passes counted.
    `predicted_speedup_one_row`: the same if rows beyond a pass's first cost nothing.
    `pass_time_share`: the cost of the passes / the measured decode time.
    """
    costs = pass_costs(options)
    if requests is None or costs is None or "steps" not in requests.counts:
        return dict.fromkeys(NAMES)
    one_row, more = (microseconds[requests.sampled] for microseconds in _spent(requests, costs))
    tokens = _tokens(requests)
    measured = tpot_s(requests) * tokens * 1e6
    values = (
        _geometric_mean(costs.plain * tokens, one_row + more),
        _geometric_mean(costs.plain * tokens, one_row),
        _geometric_mean(one_row + more, measured),
    )
    return dict(zip(NAMES, values, strict=True))


def _spent(requests: RequestArrays, costs: PassCosts) -> tuple[Floats, Floats]:
    """(R,) microseconds of each request's passes at one row, and of their further rows."""
    steps = _count(requests, "steps")
    exits = np.array([_count(requests, f"exits_layer_{layer}") for layer in costs.layers])
    exits = exits.reshape(-1, len(requests))
    checks = [_count(requests, f"checks_layer_{layer}") for layer in costs.layers]
    one_row = steps * costs.final_head
    for count, head in zip(checks, costs.exit_heads, strict=True):
        one_row = one_row + count * head
    more = exits.sum(axis=0) * _of_a_row(costs.final_head, costs.final_head_full, costs)
    for place, (one, full) in enumerate(zip(costs.segments, costs.segments_full, strict=True)):
        one_row = one_row + (steps + exits[place:].sum(axis=0)) * one
        more = more + exits[:place].sum(axis=0) * _of_a_row(one, full, costs)
    return one_row, more


def _of_a_row(one: float, full: float, costs: PassCosts) -> float:
    return max(full - one, 0.0) / costs.max_drafts


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
