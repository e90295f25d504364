"""One trial's metrics as a flat mapping of names to plain numbers, None where undefined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.core.nouns import Load, Slo
from results.compare import agreement, quality
from results.compare.agreement import Agreement
from results.compare.pairing import ComparableTrials, Member, Versus
from results.compare.stats import geometric_mean
from results.metrics import exit_costs, latency, work
from results.metrics.arrays import Flags, Floats, RequestArrays

DISTRIBUTIONS: Mapping[str, Callable[[RequestArrays], Floats]] = {
    "ttft_s": latency.ttft_s,
    "tpot_s": latency.tpot_s,
    "itl_s": latency.itl_s,
    "e2e_s": latency.e2e_s,
    "decode_tok_per_s": latency.decode_tok_per_s,
    "submit_lag_s": latency.submit_lag_s,
    "client_lag_s": latency.client_lag_s,
    "stamp_lag_s": latency.stamp_lag_s,
}
"""Metrics with one value per request (per token for `itl_s`): NAME_p50, _p95, _p99 and _mean."""
PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0}


def metrics(member: Member, against: Versus | None, native: Versus | None) -> dict[str, Any]:
    """Every metric of one trial by name, always the same names. All None for a trial that did not
    end well. The intervals of the speed-ups and the noise floor belong to a cell and are None."""
    requests, record = member.requests, member.stored.record
    known = requests is not None
    sums = work.totals(requests) if requests is not None else {}
    found: dict[str, Any] = {
        **_counts(requests),
        "realised_rate_per_s": _realised_rate(requests, record.trial.load),
        "setup_s": record.setup_s,
        "peak_memory_bytes": record.peak_memory_bytes if known else None,
        "energy_j": record.energy_j if known else None,
        **_timing(requests, record.trial.slo, against),
        **_distributions(requests),
        **_scores(requests),
        **work.rates(sums),
        "exits_by_layer": work.exits_by_layer(sums),
        "exits_by_batch": work.exits_by_batch(sums),
        **exit_costs.predictions(requests, record.backend.options if record.backend else {}),
        **_agreement(requests, against),
        **_speed(against, ""),
        **_of_the_reference(requests, against),
        "noise_floor": None,
        "consistency_native": agreement.consistency_ratio(native.agreement) if native else None,
        **_speed(native, "_native"),
    }
    # one definition for the mean, under the metric's own name too
    found["decode_tok_per_s"] = found["decode_tok_per_s_mean"]
    return found


def describe(values: Floats | None, name: str) -> dict[str, float | None]:
    """NAME_p50, NAME_p95, NAME_p99 (numpy's linear interpolation) and NAME_mean of the defined
    values; None when there are none."""
    defined = np.sort(values[~np.isnan(values)]) if values is not None else np.empty(0)
    found: dict[str, float | None] = {
        f"{name}_{suffix}": percentile(defined, share) for suffix, share in PERCENTILES.items()
    }
    return {**found, f"{name}_mean": float(defined.mean()) if len(defined) else None}


def percentile(ascending: Floats, share: float) -> float | None:
    """`numpy.percentile` with its default, linear method, for values that are sorted already."""
    if not len(ascending):
        return None
    place = share / 100 * (len(ascending) - 1)
    below = math.floor(place)
    low, high = float(ascending[below]), float(ascending[min(below + 1, len(ascending) - 1)])
    return low + (high - low) * (place - below)


def identity(member: Member, group: ComparableTrials) -> dict[str, Any]:
    """What was run, without the repeat: the columns that name a cell."""
    record, trial = member.stored.record, member.trial
    reference = next(iter(group.reference.values()), None)
    return {
        "backend": trial.backend,
        "options": dict(trial.options),
        "provenance": record.backend.provenance if record.backend else None,
        "lossless": record.backend.lossless if record.backend else None,
        "is_reference": reference is not None and member.variant == reference.variant,
        "model": trial.model.name,
        "dtype": trial.model.dtype,
        "workload": trial.workload.name,
        "source": trial.workload.source,
        "load": trial.load.label(),
        "load_kind": trial.load.kind,
        "concurrency": trial.load.concurrency,
        "rate": trial.load.rate,
        "burstiness": trial.load.burstiness,
        "requests": trial.requests,
        "seed": trial.seed,
    }


def _scores(requests: RequestArrays | None) -> dict[str, float | None]:
    if requests is None:
        return dict.fromkeys(quality.SCORES)
    return {name: quality.mean_score(requests, name) for name in quality.SCORES}


def _counts(requests: RequestArrays | None) -> dict[str, int | None]:
    names = ("n_requests", "n_completed", "n_errors", "n_unfinished", "output_tokens")
    if requests is None:
        return dict.fromkeys(names)
    completed, failed = int(requests.completed.sum()), int(requests.failed.sum())
    rest = len(requests) - completed - failed
    tokens = latency.output_tokens(requests)
    return dict(zip(names, (len(requests), completed, failed, rest, tokens), strict=True))


def _realised_rate(requests: RequestArrays | None, load: Load) -> float | None:
    return latency.arrival_rate_per_s(requests) if requests is not None and load.is_open else None


def _timing(
    requests: RequestArrays | None, slo: Slo, against: Versus | None
) -> dict[str, float | None]:
    names = (
        "request_per_s",
        "output_tok_per_s",
        "inner_token_latency_s",
        "goodput_req_per_s",
        "goodput_tok_per_s",
        "good_and_right_per_s",
    )
    if requests is None:
        return dict.fromkeys(names)
    right = quality.is_right(requests, against.agreement if against else None)
    values = (
        latency.request_per_s(requests),
        latency.output_tok_per_s(requests),
        latency.inner_token_latency_s(requests),
        latency.goodput_req_per_s(requests, slo),
        latency.goodput_tok_per_s(requests, slo),
        good_and_right_per_s(requests, slo, right),
    )
    return dict(zip(names, values, strict=True))


def good_and_right_per_s(requests: RequestArrays, slo: Slo, right: Flags | None) -> float | None:
    """Requests that meet the objective *and* are right (`quality.is_right`), per second of
    `latency.window_s`. None when nothing says what is right."""
    seconds = latency.window_s(requests)
    if right is None or seconds is None:
        return None
    return int((latency.meets_slo(requests, slo) & right).sum()) / seconds


def _distributions(requests: RequestArrays | None) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, values in DISTRIBUTIONS.items():
        found |= describe(values(requests) if requests is not None else None, name)
    return found


def _agreement(requests: RequestArrays | None, against: Versus | None) -> dict[str, Any]:
    if requests is None or against is None or against.other.requests is None:
        return {
            "consistency_ratio": None,
            "consistency_requests": None,
            "first_divergence": None,
            "first_divergence_request": None,
            "first_divergence_margin": None,
            **describe(None, "first_divergence"),
            "rouge_l_to_full": None,
        }
    pairs, reference = against.agreement, against.other.requests
    rouge = quality.rouge_l_to_full(requests, reference, pairs)
    return {
        "consistency_ratio": agreement.consistency_ratio(pairs),
        "consistency_requests": len(pairs),
        **_earliest(requests, reference, pairs),
        **describe(agreement.first_divergence(pairs), "first_divergence"),
        "rouge_l_to_full": describe(rouge, "rouge")["rouge_mean"],
    }


def _earliest(
    requests: RequestArrays, reference: RequestArrays, pairs: Agreement
) -> dict[str, Any]:
    """The place of the earliest divergence of the trial: index, request and reference margin."""
    places = np.flatnonzero(~pairs.equal())
    if not len(places):
        return dict.fromkeys(
            ("first_divergence", "first_divergence_request", "first_divergence_margin")
        )
    place = int(places[np.argmin(pairs.divergence[places])])
    return {
        "first_divergence": int(pairs.divergence[place]),
        "first_divergence_request": requests.ids[int(pairs.rows[place])],
        "first_divergence_margin": agreement.margin_at_divergence(pairs, reference, place),
    }


def _of_the_reference(
    requests: RequestArrays | None, against: Versus | None
) -> dict[str, float | None]:
    """This trial against the reference's of the same repeat, each as a whole; above 1 is better.
    Speed is never compared across repeats."""
    other = against.other.requests if against and against.log_ratios is not None else None
    if requests is None or other is None:
        return dict.fromkeys(("throughput_ratio", "inner_token_latency_ratio"))
    throughput, inner = latency.output_tok_per_s, latency.inner_token_latency_s
    return {
        "throughput_ratio": work.ratio(throughput(requests), throughput(other)),
        "inner_token_latency_ratio": work.ratio(inner(other), inner(requests)),
    }


def _speed(against: Versus | None, suffix: str) -> dict[str, Any]:
    logs = against.log_ratios if against else None
    return {
        f"speedup{suffix}": geometric_mean(logs) if logs is not None else None,
        f"speedup{suffix}_low": None,
        f"speedup{suffix}_high": None,
        f"speedup{suffix}_requests": int((~np.isnan(logs)).sum()) if logs is not None else None,
    }
