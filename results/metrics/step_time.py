"""Where the time of a decode step goes: reading weights, the rest of the model's passes, and the
engine around them.

A request decodes from its first commit to its last, but for what it waits while others' prompts are
read. Of that time the passes of the model took a part that the backend tells
(`harness.core.names.PASS_US`), and making drafts another (`DRAFT_US`); the rest is the engine's
overhead: scheduling, making inputs, choosing tokens, handing them out. And the passes cannot be
shorter than it takes to read what they read, and to multiply with it, at the rates that were
measured on this machine (`harness.core.ceilings`): the floor. It counts what the counts tell of:
layers, final heads and exit heads, and the cache once for each pass. What a process reads in each
of its passes decides how fast it reads: a stage's part of a model, or its first layers, may stay in
a processor cache where the whole model does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from harness.core.ceilings import Ceilings, best, ceilings_from_json
from harness.core.names import ATTENDED, DRAFT_US, PASS_US
from harness.core.nouns import TrialRecord
from results.metrics.arrays import Floats, RequestArrays
from results.metrics.latency import NS, decode_s
from results.metrics.stages import by_stage

RATES_DIFFER = 1.05
"""By so much from one measurement of a machine's best rate to the next."""
JUDGED_AT = "judged_at_"
NAMES = ("step_s", "prompts_share", "overhead_share", "draft_share", "floor_share")


def best_ceilings(records: Iterable[TrialRecord]) -> dict[str, Ceilings]:
    """By machine (its fingerprint) the best rates among these trials' environments: what else a
    machine does only ever lowers them, and it may have done so whenever they were measured."""
    found: dict[str, Ceilings] = {}
    for record in records:
        known = ceilings_from_json(record.environment.get("ceilings"))
        if known is not None:
            found[machine_of(record)] = best(known, found.get(machine_of(record)))
    return found


def machine_of(record: TrialRecord) -> str:
    """The key of `best_ceilings`."""
    return str(record.environment.get("fingerprint"))


def shares(
    requests: RequestArrays, record: TrialRecord, ceilings: Ceilings | None
) -> dict[str, float | None]:
    """The metrics of `NAMES` for one trial, None where a count, the model's bytes or the machine's
    bandwidth is not known. A floor above the time that it took was measured while the machine was
    slower: it is not known then, unless it is so little above as rates differ by.

    Sums run over the sampled requests, each of which waits for every step that it is in: a step
    with many rows weighs as much as its rows.
    """
    total = float(decode_s(requests).sum())
    steps, passes = _sampled(requests, "steps"), _sampled(requests, PASS_US)
    if not total or steps is None or not steps.sum():
        return dict.fromkeys(NAMES)
    waits = prompt_waits_s(requests)
    decoding = total - waits
    floor = None if ceilings is None else _floor_s(requests, record, ceilings, total)
    if floor is not None and floor > decoding:
        floor = decoding if floor <= RATES_DIFFER * decoding else None
    drafts = _seconds(_sampled(requests, DRAFT_US))
    # a prompt's passes are among those that whoever waits for them is told of
    rest = None if passes is None else total - (_seconds(passes) or 0.0) - (drafts or 0.0)
    return {
        "step_s": decoding / float(steps.sum()),
        "prompts_share": waits / total,
        "overhead_share": None if rest is None else min(max(rest / decoding, 0.0), 1.0),
        "draft_share": None if drafts is None else drafts / decoding,
        "floor_share": None if floor is None else floor / decoding,
    }


def prompt_waits_s(requests: RequestArrays) -> float:
    """Seconds that the sampled requests together waited for prompts of others: of each pause
    between two commits in which another's first tokens came, what is beyond the usual pause (the
    median of those without). A prompt that is read in several pieces shows in the last one
    alone."""
    stamps, starts = requests.commit_ns, requests.commit_start
    firsts = np.sort(stamps[starts[:-1][np.diff(starts) > 0]])
    owners = np.repeat(np.arange(len(requests)), np.diff(starts))
    ends = np.flatnonzero(owners[1:] == owners[:-1]) + 1
    pauses = (stamps[ends] - stamps[ends - 1]) / NS
    before, after = (np.searchsorted(firsts, stamps[at], "right") for at in (ends - 1, ends))
    alone = after == before
    if alone.all() or not alone.any():
        return 0.0
    beyond = pauses[~alone & requests.sampled[owners[ends]]] - np.median(pauses[alone])
    return float(np.maximum(beyond, 0.0).sum())


def _floor_s(
    requests: RequestArrays, record: TrialRecord, ceilings: Ceilings, total_s: float
) -> float | None:
    """Seconds that reading and multiplying took at least. A pass reads its weights once and
    multiplies with them, and reads a cache, once for each of its rows: there were as many as
    requests were decoding at a time."""
    known = None if record.backend is None else record.backend.measured.pass_bytes
    steps, layers = _sampled(requests, "steps"), _sampled(requests, "layers_run")
    attended = _sampled(requests, ATTENDED)
    if known is None or steps is None or layers is None or attended is None:
        return None
    span = _span_s(requests)
    rows = total_s / span if span else 1.0
    threads = _threads(record)
    weights = float(layers.sum()) * known["layer"] + float(steps.sum()) * known["head"]
    weights += _checks(requests) * _check_bytes(_told(record), known)
    again = _layers_again(requests, layers, steps, known["layers"])
    size = again * known["layer"] + known["head"]
    # a verified draft's positions are read once, and a layer that did not run reads none
    each = attended / np.maximum(requests.tokens[requests.sampled] - 1, 1)
    cache = float((each * layers).sum()) / known["layers"] * known["kv"]
    read = weights + cache * rows
    reading = read / ceilings.read_at(size, threads)
    if record.trial.model.dtype == "float32":
        return reading
    whole = known["layers"] * known["layer"] + known["head"]
    most = max(weights, _verified(requests, float(steps.sum())) * whole)
    # two operations for each number, and each number has at most two bytes
    return max(reading, most * rows / ceilings.flops(threads))


def _verified(requests: RequestArrays, steps: float) -> float:
    """Positions of the sampled requests that went through the whole model: where drafts are
    verified, one in each step and that of each draft that was judged. Stages multiply at the same
    time as others do, and are left out."""
    judged = [v for name, v in requests.counts.items() if name.startswith(JUDGED_AT)]
    if not judged or by_stage(dict.fromkeys(requests.counts, 0.0), 1.0):
        return 0.0
    return steps + sum(float(np.nansum(values[requests.sampled])) for values in judged)


def _layers_again(requests: RequestArrays, run: Floats, steps: Floats, every: int) -> float:
    """Layers that a process reads in each of its passes, with a head: a smaller cache may hold
    them than the whole model. Of stages, each in a process of its own, those of the shortest."""
    stages = by_stage({n: float(np.nansum(v)) for n, v in requests.counts.items()}, 1.0) or {}
    held = [one["layers"] / one["rows"] for one in stages.values() if one["rows"]]
    return min([every, float(run.sum()) / float(steps.sum()), *held])


def _checks(requests: RequestArrays) -> float:
    """Exit heads that the sampled requests waited for beyond the heads of their steps. Where a
    token that leaves stands unverified (`batch_rows`), the check's logits are its step's."""
    names = ("checks", "exits") if "batch_rows" in requests.counts else ("checks",)
    found = dict.fromkeys(names, 0.0)
    for name, values in requests.counts.items():
        kind, _, layer = name.partition("_layer_")
        if kind in found and layer:
            found[kind] += float(np.nansum(values[requests.sampled]))
    return max(found["checks"] - found.get("exits", 0.0), 0.0)


def _check_bytes(options: Mapping[str, Any], known: Mapping[str, int]) -> float:
    """What an exit head reads, with these effective options: nothing where confidence is asked of
    the hidden state, and at least nothing where a record does not tell the size of a shortlist."""
    if options.get("measure", "softmax") != "softmax":
        return 0.0
    kept = options.get("shortlist")
    size = float(known["head"] if kept is None else kept * known.get("head_row", 0))
    return size / 2 if options.get("head_dtype") == "fp8" else size


def _threads(record: TrialRecord) -> int | None:
    threads = _told(record).get("threads")
    return threads if isinstance(threads, int) else None


def _told(record: TrialRecord) -> Mapping[str, Any]:
    """The options that took effect."""
    return {} if record.backend is None else record.backend.options


def _seconds(microseconds: Floats | None) -> float | None:
    return None if microseconds is None else float(microseconds.sum()) / 1e6


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
