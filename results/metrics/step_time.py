"""Where the time of a decode step goes: reading weights, the rest of the model's passes, and the
engine around them.

A request waits from its first commit to its last. Of that time the passes of the model took a part
that the backend tells (`harness.core.names.PASS_US`), and making drafts another (`DRAFT_US`); the
rest is the engine's overhead: scheduling, making inputs, choosing tokens, handing them out. And the
passes cannot be shorter than it takes to read what they read, and to multiply with it, at the rates
that were measured on this machine (`harness.core.ceilings`): the floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.core.ceilings import ceilings_from_json
from harness.core.names import ATTENDED, DRAFT_US, PASS_US
from harness.core.nouns import TrialRecord
from results.metrics.arrays import Floats, RequestArrays
from results.metrics.latency import NS, decode_s

NAMES = ("step_s", "overhead_share", "draft_share", "floor_share")


def shares(requests: RequestArrays, record: TrialRecord) -> dict[str, float | None]:
    """The metrics of `NAMES` for one trial, None where a count, the model's bytes or the machine's
    bandwidth is not known.

    Sums run over the sampled requests, each of which waits for every step that it is in: a step
    with many rows weighs as much as its rows.
    """
    seconds = decode_s(requests)
    total = float(seconds.sum())
    steps, passes = _sampled(requests, "steps"), _sampled(requests, PASS_US)
    if not total or steps is None or not steps.sum():
        return dict.fromkeys(NAMES)
    floor = _floor_s(requests, record, total)
    drafting = _sampled(requests, DRAFT_US)
    drafts = None if drafting is None else float(drafting.sum()) / 1e6 / total
    busy = None if passes is None else float(passes.sum()) / 1e6 / total + (drafts or 0.0)
    return {
        "step_s": total / float(steps.sum()),
        "overhead_share": None if busy is None else max(1 - busy, 0.0),
        "draft_share": drafts,
        "floor_share": None if floor is None else floor / total,
    }


def _floor_s(requests: RequestArrays, record: TrialRecord, total_s: float) -> float | None:
    """Seconds that reading and multiplying took at least. A pass reads its weights once and
    multiplies with them, and reads a cache, once for each of its rows: there were as many as
    requests were decoding at a time."""
    known = None if record.backend is None else record.backend.measured.pass_bytes
    ceilings = ceilings_from_json(record.environment.get("ceilings"))
    steps, layers = _sampled(requests, "steps"), _sampled(requests, "layers_run")
    attended = _sampled(requests, ATTENDED)
    if known is None or ceilings is None or steps is None or layers is None or attended is None:
        return None
    span = _span_s(requests)
    rows = total_s / span if span else 1.0
    threads = _threads(record)
    weights = float(layers.sum()) * known["layer"] + float(steps.sum()) * known["head"]
    size = known["layers"] * known["layer"] + known["head"]
    read = weights + float(attended.sum()) * known["kv"] * rows
    reading = read / ceilings.read_at(size, threads)
    if record.trial.model.dtype == "float32":
        return reading
    # two operations for each number, and each number has two bytes
    return max(reading, weights * rows / ceilings.flops(threads))


def _threads(record: TrialRecord) -> int | None:
    told: Mapping[str, Any] = {} if record.backend is None else record.backend.options
    threads = told.get("threads")
    return threads if isinstance(threads, int) else None


def _span_s(requests: RequestArrays) -> float:
    """From the first commit of all to the last."""
    stamps = requests.commit_ns
    return float(stamps[requests.last_commit()].max() - stamps[requests.first_commit()].min()) / NS


def _sampled(requests: RequestArrays, name: str) -> Floats | None:
    """A count of the sampled requests; None where one of them has none."""
    if name not in requests.counts:
        return None
    values = requests.counts[name][requests.sampled]
    alone = requests.tokens[requests.sampled] <= 1  # nothing was decoded after its prompt's token
    values = np.where(alone & np.isnan(values), 0.0, values)
    return None if np.isnan(values).any() else values
