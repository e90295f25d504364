"""What two refinements of early exit could gain at best, for `benchmarks/early_exit.py`: steps are
measured, sequences are independent, foresight is perfect."""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np

from backends.checkpoints import models
from benchmarks.support.turns import (
    BATCHES,
    WORKLOADS,
    Wanted,
    answers,
    counted,
    engines,
    in_turns,
    mixed_requests,
    step_ms,
)

SIZES = (1, 2, 4, 8, 16)
DRAWS = 4000
HIGH = 0.85
"""A threshold beside the calibrated one."""


def bounds(chosen: argparse.Namespace, mode: str) -> dict[str, Any]:
    """Two refinements that the paper leaves out. Groups: a batch in two parts, each a step of its
    own, split at the best place by sequences that are known to need few layers and those that
    need many. Probe: something that costs nothing and tells when a softmax check would fail."""
    depth = models.read_config(chosen.folder)["num_hidden_layers"]
    requests = mixed_requests(str(chosen.folder), chosen.requests * len(WORKLOADS))
    every: Wanted = (
        "vllm-early-exit",
        chosen.folder,
        {"measure": "schedule", "layers": list(range(1, depth))},
    )
    found: dict[str, Any] = {"groups": {}, "probe": {}}
    with engines(chosen, mode, early=every) as systems:
        early = systems["early"]
        costs = step_costs(early, depth, chosen.repeats)
        found["step ms at layer 1 and per further layer"] = {
            size: [round(float(ms), 4) for ms in (first, more)]
            for size, (first, more) in costs.items()
        }
        for measure in ("softmax", "state", "classifier"):
            early.configure({"measure": measure, "layers": "auto"})
            needed = own_exits(counted(answers(early, requests, 1)), depth)
            found["groups"][measure] = {
                f"batch {batch}": split(costs, needed, batch) for batch in BATCHES[1:]
            }
        early.configure({"measure": "softmax", "layers": "auto"})
        calibrated = early.configured
        for threshold in (calibrated.thresholds[0], HIGH):
            checked = {"layers": list(calibrated.layers), "threshold": threshold}
            early.configure({"measure": "softmax", **checked})
            found["probe"][f"threshold {threshold}"] = {
                f"batch {batch}": failing(counted(answers(early, requests, batch)))
                for batch in BATCHES
            }
    return found


def step_costs(early: Any, depth: int, repeats: int) -> dict[int, tuple[float, float]]:
    """By batch: milliseconds of a step that leaves after layer 1, and of each further layer."""

    def leave(size: int, layer: int) -> float:
        early.configure({"measure": "static", "layers": [layer]})
        return step_ms(early, size)

    layers = (1, depth // 2, depth - 1)
    calls = {
        f"{size} {layer}": functools.partial(leave, size, layer)
        for size in SIZES
        for layer in layers
    }
    times = in_turns(calls, repeats)
    found = {}
    for size in SIZES:
        medians = [statistics.median(times[f"{size} {layer}"]) for layer in layers]
        slope, start = np.polyfit(layers, medians, 1)
        found[size] = (start + slope, slope)
    return found


def own_exits(counts: Mapping[str, float], depth: int) -> np.ndarray[Any, Any]:
    """The share of decoded tokens that need each number of layers, from 1 to all."""
    exits = [counts.get(f"own_exits_layer_{layer}", 0.0) for layer in range(1, depth)]
    tokens = counts["steps"] - counts.get("mixed_steps", 0.0)
    return np.array([*exits, tokens - sum(exits)]) / tokens


def split(
    costs: Mapping[int, tuple[float, float]], needed: np.ndarray[Any, Any], batch: int
) -> dict[str, float]:
    """Time of one step for a batch of independent sequences over that of the better of one step
    and of the best two, and how often two are better."""
    first, more = (
        np.interp(range(batch + 1), list(costs), [cost[part] for cost in costs.values()])
        for part in (0, 1)
    )
    draw = np.random.default_rng(0).choice(np.arange(len(needed)), (DRAWS, batch), p=needed)
    layers = np.sort(draw, axis=1)
    one = first[batch] + more[batch] * layers[:, -1]
    sizes = np.arange(1, batch)
    small = first[sizes] + more[sizes] * layers[:, :-1]
    rest = first[batch - sizes] + more[batch - sizes] * layers[:, -1:]
    two = (small + rest).min(axis=1)
    return {
        "at most": round(float(one.sum() / np.minimum(one, two).sum()), 4),
        "two are better": round(float((two < one).mean()), 4),
    }


def failing(counts: Mapping[str, float]) -> dict[str, float | None]:
    """The checks that did not end their step, and their part of the forward pass."""
    checks, exits = (
        sum(count for name, count in counts.items() if name.startswith(kind))
        for kind in ("checks_layer_", "exits_layer_")
    )
    share = (checks - exits) / checks
    spent = counts["check_us"] / counts["forward_us"] if "forward_us" in counts else None
    return {
        "checks that fail": round(share, 4),
        "of the forward pass": None if spent is None else round(share * spent, 4),
    }
