"""What a speed-up is made of: fewer steps for a token, other time for a step, another length."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from results.compare.agreement import pair
from results.metrics.arrays import Floats, RequestArrays
from results.metrics.latency import decode_s, later_tokens

PARTS = ("speedup_steps", "speedup_step_time", "speedup_length")
_COUNT = "steps"


def speedup_parts(this: RequestArrays, reference: RequestArrays) -> Mapping[str, Floats]:
    """By name of `PARTS` (R,) logs of the reference's value / this trial's, request by request.

    With S steps (`steps`) and n tokens after the first commit, in decode time T (last commit -
    first): steps are S / n, step time T / S, length n. The first two add up to the log of
    `speedup`, all three to that of T. NaN where a part of one side is undefined or zero.
    """
    rows, others = pair(this, reference)
    found = {name: np.full(len(this), np.nan) for name in PARTS}
    ours, theirs = _logs(this), _logs(reference)
    if ours is None or theirs is None:
        return found
    with np.errstate(invalid="ignore"):  # two answers of one commit: both logs are -infinity
        steps, tokens, seconds = (theirs[name][others] - ours[name][rows] for name in ours)
    whole = np.isfinite(steps + tokens + seconds)
    rows = rows[whole]
    found["speedup_steps"][rows] = (steps - tokens)[whole]
    found["speedup_step_time"][rows] = (seconds - steps)[whole]
    found["speedup_length"][rows] = tokens[whole]
    return found


def _logs(requests: RequestArrays) -> dict[str, Floats] | None:
    """(R,) logs of steps, of the tokens after the first commit and of the decode time; None without
    counts. Not finite where there is nothing to count."""
    if _COUNT not in requests.counts:
        return None
    tokens, seconds = np.full(len(requests), np.nan), np.full(len(requests), np.nan)
    seconds[requests.sampled] = decode_s(requests)
    tokens[requests.sampled] = later_tokens(requests)
    values = {"steps": requests.counts[_COUNT], "tokens": tokens, "seconds": seconds}
    with np.errstate(divide="ignore", invalid="ignore"):
        return {name: np.log(found) for name, found in values.items()}
