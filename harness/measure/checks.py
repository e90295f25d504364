"""May the numbers of a trial be believed, as far as the trial itself shows it?"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from harness.core.names import (
    CACHE_TELEMETRY,
    CACHED_TOKENS,
    COLD_RESET,
    COUNTED_TOKENS,
    KEEPS_PROMPTS,
    KV_CACHE_TOKENS,
    PREEMPTIONS,
    QUALITY,
    SERVER,
    SERVER_TOKENS,
    row_id,
)
from harness.core.nouns import SAMPLES_NEEDED, BackendInfo, Generation, Request, Trial, Validity
from harness.measure.machine.noise import disturbed, unseen
from harness.measure.machine.snapshots import Disturbance
from harness.measure.remarks.calibrated import calibrated_otherwise

MAX_CLIENT_LAG_NS = 5_000_000
"""p99 of the harness's own lateness, in submitting and in stamping. Beyond this the client, not the
system, is being measured."""
PREFIX_CACHING = "prefix_caching"
"""Option of backends that reuse prompt prefixes when asked: then cached tokens are no fault."""
MAX_SHARED_PROMPTS = 0.10
"""Share of a trial's prompt tokens that an earlier one of its prompts may have left in a cache that
was dropped before the trial: about the share of the prompts' work that such a cache saves."""


def check_trial(
    trial: Trial,
    generations: Sequence[Generation],
    info: BackendInfo,
    disturbance: Disturbance | None = None,
    *,
    requests: Sequence[Request] = (),
    remarks: Sequence[str] = (),
) -> Validity:
    """The verdict on one trial from what the trial itself shows.

    Each reason begins with a slug: "failures", "client-late", "cache-not-cold", "cache-unknown",
    "output-clipped", "token-counts", "clocks-throttled", "machine-noisy", "too-few-samples",
    "noise-not-checked", "kv-starved". A trial with too few samples for its high percentiles only is
    still valid: the reason names the percentiles that say nothing. Nor do the last two make a trial
    invalid. Of a load for the answers' sake it is asked only whether all answers are there, whole.
    `requests`: those of the trial, where their prompts and the tokens they ask for are known.
    `remarks`: more of those that leave a trial valid.
    """
    asked = {request.id: request.max_new_tokens for request in requests}
    whole = [*_failures(trial, generations), *_clipped(trial, generations, asked)]
    if trial.load.kind == QUALITY:
        return Validity(not whole, (*whole, *calibrated_otherwise(trial, info), *remarks))
    reasons = [
        *whole,
        *_client(generations),
        *_cache(trial, generations, info, requests),
        *_counts(generations),
        *(disturbed(disturbance, info) if disturbance is not None else ()),
    ]
    enough = sum(_answered(g) for g in generations) >= SAMPLES_NEEDED["p50"]
    valid = enough and not reasons
    told = (*_samples(generations), *unseen(disturbance, info), *_starved(generations, info))
    return Validity(valid, (*reasons, *told, *calibrated_otherwise(trial, info), *remarks))


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie, as numpy and docs/metrics.md have it: linear
    between order statistics."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _answered(generation: Generation) -> bool:
    return generation.finished in ("stop", "length")


def _failures(trial: Trial, generations: Sequence[Generation]) -> list[str]:
    failed = [g for g in generations if g.finished == "error"]
    wanted = trial.requests if trial.duration_s is None else len(generations)
    unfinished = wanted - len(generations) + sum(g.finished is None for g in generations)
    reasons = []
    if failed:
        first = f"first: {failed[0].request_id}: {failed[0].error}"
        reasons.append(f"failures: {len(failed)} of {wanted} requests failed ({first})")
    if unfinished > 0:
        reasons.append(f"failures: {unfinished} of {wanted} requests did not finish")
    return reasons


def _client(generations: Sequence[Generation]) -> list[str]:
    """Late on the way out, or late to stamp what came back: first tokens apart, since thousands of
    later ones would hide them."""
    first = [g.stamp_lag_ns[0] for g in generations if g.stamp_lag_ns]
    lags = {
        "submitted": [g.client_lag_ns for g in generations],
        "stamped first tokens": first,
        "stamped tokens": [lag for g in generations for lag in g.stamp_lag_ns],
    }
    return [
        f"client-late: the harness itself {did} up to {lag / 1e6:.1f} ms late "
        f"(p99; limit {MAX_CLIENT_LAG_NS / 1e6:g} ms)"
        for did, values in lags.items()
        if values and (lag := percentile(values, 0.99)) > MAX_CLIENT_LAG_NS
    ]


def _cache(
    trial: Trial,
    generations: Sequence[Generation],
    info: BackendInfo,
    requests: Sequence[Request],
) -> list[str]:
    """A server's cache is empty when the trial begins where it drops it, and what came from it
    later is known only where it counts that."""
    wanted = trial.options.get(PREFIX_CACHING)
    if wanted is True:
        return []
    cached = sum(g.telemetry.get(CACHED_TOKENS, 0) for g in generations)
    if cached:
        return [f"cache-not-cold: {cached:.0f} prompt tokens came from a cache nobody asked for"]
    if SERVER not in info.capabilities or CACHE_TELEMETRY in info.capabilities or wanted == "none":
        return []
    if KEEPS_PROMPTS in info.capabilities:
        return [
            "cache-unknown: a KV connector of the server may keep prompts while its cache is "
            "dropped, and the server does not count the prompt tokens that came from there (vLLM "
            "does with --enable-prompt-tokens-details, and shows by its /metrics that it has none)"
        ]
    said = f"({PREFIX_CACHING}: true says that its cache is meant, none that it has none)"
    if COLD_RESET not in info.capabilities:
        return [
            "cache-unknown: the server neither drops its cache between trials nor counts the "
            f"prompt tokens that came from it {said}"
        ]
    if (share := _shared(generations, requests)) <= MAX_SHARED_PROMPTS:
        return []
    return [
        "cache-unknown: the server does not count the prompt tokens that came from its cache, and "
        f"of this trial's {share:.0%} begin another of its prompts too (limit "
        f"{MAX_SHARED_PROMPTS:.0%}) {said}"
    ]


def _shared(generations: Sequence[Generation], requests: Sequence[Request]) -> float:
    """The share of the prompts' tokens that a cache may hold from another prompt of the same trial:
    those of a prompt asked again, and beginnings that prompts have in common."""
    prompts = {request.id: request.prompt_ids for request in requests}
    # not known, they are told apart by the requests' names
    prompts = prompts or {g.request_id: (place,) for place, g in enumerate(generations)}
    times = Counter(prompts[row_id(g.request_id, prompts)] for g in generations)
    whole = sum(len(prompt) * count for prompt, count in times.items())
    new = 0
    before: tuple[int, ...] = ()
    for prompt in sorted(times):  # what has most in common stands side by side
        same = (a == b for a, b in zip(prompt, before, strict=False))
        new += len(prompt) - sum(itertools.takewhile(bool, same))
        before = prompt
    return 1 - new / whole if whole else 0.0


def _clipped(
    trial: Trial, generations: Sequence[Generation], asked: Mapping[str, int]
) -> list[str]:
    names = set(asked)

    def wanted(generation: Generation) -> int:
        return asked.get(row_id(generation.request_id, names), trial.max_new_tokens)

    ended = [g for g in generations if g.finished == "length"]
    short = [g for g in ended if len(g.token_ids) < wanted(g)]
    if not short:
        return []
    return [
        f"output-clipped: {len(short)} of {len(generations)} answers ended for length before the "
        f"{wanted(short[0])} tokens asked for "
        f"(first: {short[0].request_id} with {len(short[0].token_ids)})"
    ]


def _counts(generations: Sequence[Generation]) -> list[str]:
    """Tokens as they were counted here against the server's own usage, which may leave out the
    token that ended the answer, or have it alone. A server without a usage gives no more than it is
    asked for, that much is known."""
    known = {SERVER_TOKENS, COUNTED_TOKENS}
    told = [g for g in generations if _answered(g) and g.telemetry.keys() & known]

    def counts(g: Generation) -> tuple[float, float]:
        booked = len(g.token_ids)
        return g.telemetry.get(COUNTED_TOKENS, booked), g.telemetry.get(SERVER_TOKENS, booked)

    pairs = [(g, *counts(g)) for g in told]
    other = [pair for pair in pairs if abs(pair[1] - pair[2]) > (pair[0].finished == "stop")]
    if not other:
        return []
    first, counted, said = other[0]
    than, where = "were asked for", "asked for"
    if SERVER_TOKENS in first.telemetry:
        than, where = "the server's usage says", "by its usage"
    return [
        f"token-counts: {len(other)} of {len(told)} answers have other numbers of tokens than "
        f"{than} (first: {first.request_id}: {counted:.0f} counted, {said:.0f} {where})"
    ]


def _starved(generations: Sequence[Generation], info: BackendInfo) -> list[str]:
    """The remark on an engine whose KV cache was too small for what was in flight."""
    times = sum(g.telemetry.get(PREEMPTIONS, 0) for g in generations)
    if not times:
        return []
    room = info.options.get(KV_CACHE_TOKENS, "an unknown number of")
    return [
        f"kv-starved: {times:.0f} preemption{'s' * (times != 1)} in a KV cache of {room} tokens "
        f"({KV_CACHE_TOKENS}): what it held of those requests was computed again"
    ]


def _samples(generations: Sequence[Generation]) -> list[str]:
    answered = sum(_answered(g) for g in generations)
    lacking = {name: needed for name, needed in SAMPLES_NEEDED.items() if answered < needed}
    if not lacking:
        return []
    needs = ", ".join(f"{name} needs {needed}" for name, needed in lacking.items())
    return [f"too-few-samples: {answered} answers say nothing about {', '.join(lacking)} ({needs})"]
