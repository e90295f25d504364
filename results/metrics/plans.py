"""What a pipeline that plans while it serves did, from counts in telemetry: its plans over time,
and survival by windows, as forecast when a window began and as it then was.

Each is told once in a trial. P and W are numbers of plans and windows, from 1, L and R of layers.

| count | meaning |
|---|---|
| `plan_at_ms_P` | milliseconds from the first input to when its stages began; of the first 0 |
| `plan_workers_P_L` | workers of its stage that ends behind layer L |
| `plan_left_out_P` | workers that it leaves out because they were slow |
| `window_inputs_W` | inputs answered in the window |
| `window_alive_W_R` | those of them that were sure at no ramp up to that behind layer R |
| `window_forecast_W_R` | the share of them that was forecast; of the first window none |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PLAN = re.compile(r"plan_(at_ms|left_out)_(\d+)")
_WORKERS = re.compile(r"plan_workers_(\d+)_(\d+)")
_INPUTS = re.compile(r"window_inputs_(\d+)")
_SHARE = re.compile(r"window_(alive|forecast)_(\d+)_(\d+)")


def plans(sums: Mapping[str, float]) -> dict[str, Any] | None:
    """For each plan, from 1: `at_s`, `workers` by the layer behind which their stage ends, and how
    many were `left_out`; None where nothing was planned. A plan of which nothing but a part was
    told, because no answer came after it, is left out."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in sums.items():
        if match := _PLAN.fullmatch(name):
            _of(found, match[2])[match[1]] = value
        elif match := _WORKERS.fullmatch(name):
            _of(found, match[1])["workers"][int(match[2])] = value
    return {
        str(number): {
            "at_s": told["at_ms"] / 1e3,
            "left_out": told["left_out"],
            "workers": {str(end): told["workers"][end] for end in sorted(told["workers"])},
        }
        for number, told in sorted(found.items())
        if told["workers"] and {"at_ms", "left_out"} <= told.keys()
    } or None


def windows(sums: Mapping[str, float]) -> dict[str, Any] | None:
    """For each window, from 1: how many `inputs` were answered, and by ramp the share `alive`
    behind it and the one in the `forecast`, which the first has not. None where there were none."""
    inputs = {int(m[1]): v for name, v in sums.items() if (m := _INPUTS.fullmatch(name))}
    found: dict[int, dict[str, Any]] = {
        number: {"inputs": count, "alive": {}, "forecast": {}}
        for number, count in sorted(inputs.items())
        if count > 0
    }
    shares = [(m, value) for name, value in sums.items() if (m := _SHARE.fullmatch(name))]
    for match, value in sorted(shares, key=lambda one: int(one[0][3])):
        told = found.get(int(match[2]))
        if told is not None:
            share = value / told["inputs"] if match[1] == "alive" else value
            told[match[1]][match[3]] = share
    return {str(number): told for number, told in found.items()} or None


def _of(found: dict[int, dict[str, Any]], number: str) -> dict[str, Any]:
    return found.setdefault(int(number), {"workers": {}})
