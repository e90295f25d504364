"""Latency and throughput of one trial, from its raw stamps.

Per-request functions return one float per *sampled* request (completed, with at least one token),
in request order, and NaN where the value is undefined for that request. Trial-wide functions
return None where undefined. Requests that failed or never finished are never samples; `goodput`
counts them as missed. Definitions: decodebench design, section 7.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from harness.core.nouns import Slo
from results.metrics.arrays import Flags, Floats, RequestArrays

NS = 1e9


def ttft_s(requests: RequestArrays) -> Floats:
    """Time to first token: first commit - scheduled. In a closed loop a request is scheduled when
    it is submitted. Seconds, (K,)."""
    first = requests.commit_ns[requests.first_commit()]
    return (first - requests.scheduled_ns[requests.sampled]) / NS


def e2e_s(requests: RequestArrays) -> Floats:
    """End to end: last commit - scheduled. Seconds, (K,)."""
    last = requests.commit_ns[requests.last_commit()]
    return (last - requests.scheduled_ns[requests.sampled]) / NS


def decode_s(requests: RequestArrays) -> Floats:
    """Last commit - first commit. Seconds, (K,)."""
    stamps = requests.commit_ns
    return (stamps[requests.last_commit()] - stamps[requests.first_commit()]) / NS


def later_tokens(requests: RequestArrays) -> Floats:
    """n - tokens of the first commit: what was decoded after the first commit. (K,)"""
    first = requests.commit_tokens[requests.first_commit()]
    return (requests.tokens[requests.sampled] - first).astype(float)


def tpot_s(requests: RequestArrays) -> Floats:
    """Time per output token: (last commit - first commit) / (n - tokens of the first commit).
    NaN where everything came in one commit. Seconds, (K,)."""
    tokens = later_tokens(requests)
    return np.divide(decode_s(requests), tokens, out=_nan(tokens), where=tokens > 0)


def decode_tok_per_s(requests: RequestArrays) -> Floats:
    """Tokens after the first commit / time after it: the inverse of `tpot_s`. NaN where there are
    no such tokens or no time passed. Tokens per second, (K,)."""
    seconds = decode_s(requests)
    return np.divide(later_tokens(requests), seconds, out=_nan(seconds), where=seconds > 0)


def itl_s(requests: RequestArrays) -> Floats:
    """Inter-token latency: the gap between two commits divided by the tokens of the later one,
    repeated for each of those tokens, so that a request's values add up to `decode_s`.
    Seconds, one value per token after each sampled request's first commit."""
    gaps = np.diff(requests.commit_ns, prepend=0)
    later = np.repeat(requests.sampled, np.diff(requests.commit_start))
    later[requests.first_commit()] = False
    tokens = requests.commit_tokens[later]
    return np.repeat(gaps[later] / NS / tokens, tokens)


def inner_token_latency_s(requests: RequestArrays) -> float | None:
    """Sum over sequences of (finish - first token) / sum of their tokens (the early-exit paper,
    section 5.2: all tokens are counted, the first included). None without tokens. Seconds."""
    tokens = int(requests.tokens[requests.sampled].sum())
    return float(decode_s(requests).sum()) / tokens if tokens else None


def window_s(requests: RequestArrays) -> float | None:
    """Last commit - first submit, over all requests. None when no time passed or nothing came."""
    if not len(requests.commit_ns):
        return None
    seconds = float(requests.commit_ns.max() - requests.submitted_ns.min()) / NS
    return seconds if seconds > 0 else None


def output_tokens(requests: RequestArrays) -> int:
    """Output tokens of the completed requests; a failed request delivers nothing."""
    return int(requests.tokens[requests.completed].sum())


def output_tok_per_s(requests: RequestArrays) -> float | None:
    """Output tokens of completed requests / (last commit - first submit)."""
    seconds = _of_tokens_s(requests)
    return output_tokens(requests) / seconds if seconds else None


def request_per_s(requests: RequestArrays) -> float | None:
    """Completed requests / (last commit - first submit)."""
    seconds = window_s(requests)
    return int(requests.completed.sum()) / seconds if seconds else None


def arrival_rate_per_s(requests: RequestArrays) -> float | None:
    """Arrivals of an open load as they were scheduled: (R - 1) / (last - first), since R arrivals
    have R - 1 gaps. A random schedule of few requests is off the rate that was asked for. None for
    fewer than two requests or no time between them. Requests per second."""
    if len(requests) < 2:
        return None
    seconds = float(requests.scheduled_ns.max() - requests.scheduled_ns.min()) / NS
    return (len(requests) - 1) / seconds if seconds > 0 else None


def submit_lag_s(requests: RequestArrays) -> Floats:
    """Submit - scheduled: how late the load loop was, whoever's fault it was. Seconds, (R,)."""
    return (requests.submitted_ns - requests.scheduled_ns) / NS


def client_lag_s(requests: RequestArrays) -> Floats:
    """How late a request left by the harness's own fault. Seconds, (R,)."""
    return requests.client_lag_ns / NS


def stamp_lag_s(requests: RequestArrays) -> Floats:
    """By how much, at most, the stamps of commits that came from a server are later than their
    bytes. Seconds, (C,), or (0,) where no stamp can be late."""
    return requests.stamp_lag_ns / NS


def busy_share(requests: RequestArrays) -> float | None:
    """The share of the window (first submit to last commit) in which at least one request had been
    submitted and was not answered to its end; one that failed or never ended counts up to the end
    of the window. None when no time passed or nothing came."""
    seconds = window_s(requests)
    if seconds is None:
        return None
    ends = np.full(len(requests), requests.commit_ns.max())
    ends[requests.sampled] = requests.commit_ns[requests.last_commit()]
    order = np.argsort(requests.submitted_ns, kind="stable")
    begins, answered = requests.submitted_ns[order], np.maximum.accumulate(ends[order])
    idle = np.maximum(begins[1:] - answered[:-1], 0).sum()
    return 1 - float(idle) / NS / seconds


def meets_slo(requests: RequestArrays, slo: Slo) -> Flags:
    """Requests that meet every bound of the objective, (R,).

    A request must be completed and have a token. A bound that is None always holds, and so does
    the `tpot_ms` bound of a request whose tokens came in one commit.
    """
    good = requests.sampled.copy()
    met = np.ones(int(good.sum()), bool)
    if slo.ttft_ms is not None:
        met &= ttft_s(requests) * 1e3 <= slo.ttft_ms
    if slo.tpot_ms is not None:
        tpot = tpot_s(requests)
        met &= np.isnan(tpot) | (tpot * 1e3 <= slo.tpot_ms)
    if slo.e2e_ms is not None:
        met &= e2e_s(requests) * 1e3 <= slo.e2e_ms
    good[good] = met
    return good


def share_of_bounds(requests: RequestArrays, slo: Slo) -> Floats:
    """The time of each request that was completed and has a token over its bound, the greatest of
    several, (n,); 0 where none holds for it."""
    share = np.zeros(int(requests.sampled.sum()))
    bounds = (slo.ttft_ms, ttft_s), (slo.tpot_ms, tpot_s), (slo.e2e_ms, e2e_s)
    for bound_ms, times_s in bounds:
        if bound_ms is not None:
            share = np.fmax(share, times_s(requests) * 1e3 / bound_ms)
    return share


def scaled(slo: Slo, scale: float) -> Slo:
    """The objective with every bound that it has times `scale`."""
    bounds = dataclasses.asdict(slo).items()
    return Slo(**{name: None if bound is None else bound * scale for name, bound in bounds})


def is_within(one: Slo, other: Slo) -> bool:
    """Whether who meets `one` meets `other` too: no bound of the other is narrower."""
    bounds = zip(dataclasses.astuple(one), dataclasses.astuple(other), strict=True)
    return all(theirs is None or (own is not None and own <= theirs) for own, theirs in bounds)


def goodput_req_per_s(requests: RequestArrays, slo: Slo) -> float | None:
    """Requests that meet the objective / (last commit - first submit)."""
    seconds = window_s(requests)
    return int(meets_slo(requests, slo).sum()) / seconds if seconds else None


def goodput_tok_per_s(requests: RequestArrays, slo: Slo) -> float | None:
    """Output tokens of the requests that meet the objective / (last commit - first submit)."""
    seconds = _of_tokens_s(requests)
    return int(requests.tokens[meets_slo(requests, slo)].sum()) / seconds if seconds else None


def _of_tokens_s(requests: RequestArrays) -> float | None:
    """`window_s`; None where answers are labels, which have no tokens."""
    return window_s(requests) if requests.labels is None else None


def _nan(like: Floats) -> Floats:
    return np.full(len(like), np.nan)
