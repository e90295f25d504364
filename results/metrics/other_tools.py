"""The same run by other tools' definitions, so that both numbers can stand side by side."""

from __future__ import annotations

import numpy as np

from harness.core.nouns import Slo
from results.metrics import latency
from results.metrics.arrays import Floats, RequestArrays

MS = 1e3


def as_vllm_bench(
    requests: RequestArrays, slo: Slo | None = None, prompt_tokens: Floats | None = None
) -> dict[str, float]:
    """What `vllm bench serve` (vLLM 0.32, `vllm/benchmarks/serve.py`, `calculate_metrics`) would
    print for these stamps, under its own key names; times in milliseconds.

    It differs from ours in four ways. Latencies count from the moment a request was sent, not from
    when it was due. ``tpot`` is (last - first) / (n - 1), also when the first chunk held several
    tokens, and 0 against the objective when n = 1. ``itl`` is one value per chunk, however many
    tokens are in it. The duration ends when the last request does, failed ones included; ours ends
    with the last token. Statistics of nothing are 0, as there; rates are NaN where no time passed.

    Args:
        requests: of the trial.
        slo: for ``request_goodput``, which is left out where no bound is set.
        prompt_tokens: (R,) NaN where not known, for the totals that count prompts.
    """
    done = requests.sampled
    sent = requests.submitted_ns[done]
    ttft = (requests.commit_ns[requests.first_commit()] - sent) / latency.NS
    e2el = (requests.commit_ns[requests.last_commit()] - sent) / latency.NS
    tokens = requests.tokens[done]
    several = tokens > 1
    tpot = (e2el - ttft)[several] / (tokens[several] - 1)
    seconds = latency.window_s(requests) or float("nan")
    found: dict[str, float] = {
        "completed": int(done.sum()),
        "failed": len(requests) - int(done.sum()),
        "duration": seconds,
        "total_output_tokens": int(tokens.sum()),
        "request_throughput": int(done.sum()) / seconds,
        "output_throughput": int(tokens.sum()) / seconds,
    }
    if prompt_tokens is not None:
        asked = float(prompt_tokens[done].sum())
        found["total_input_tokens"] = asked if np.isnan(asked) else int(asked)
        found["total_token_throughput"] = (asked + int(tokens.sum())) / seconds
    if slo is not None and slo != Slo():
        all_tpot = np.zeros(len(tokens))
        all_tpot[several] = tpot
        good = _within(ttft, slo.ttft_ms) & _within(all_tpot, slo.tpot_ms)
        good &= _within(e2el, slo.e2e_ms)
        found["request_goodput"] = int(good.sum()) / seconds
    times = {"ttft": ttft, "tpot": tpot, "itl": _chunk_gaps(requests), "e2el": e2el}
    for name, values in times.items():
        found |= _statistics(name, values)
    return found


def _chunk_gaps(requests: RequestArrays) -> Floats:
    later = np.repeat(requests.sampled, np.diff(requests.commit_start))
    later[requests.first_commit()] = False
    return np.asarray(np.diff(requests.commit_ns, prepend=0)[later] / latency.NS)


def _within(seconds: Floats, bound_ms: float | None) -> np.ndarray:
    return np.asarray(seconds * MS <= (np.inf if bound_ms is None else bound_ms))


def _statistics(name: str, seconds: Floats) -> dict[str, float]:
    values = seconds * MS if len(seconds) else np.zeros(1)
    return {
        f"mean_{name}_ms": float(np.mean(values)),
        f"median_{name}_ms": float(np.median(values)),
        f"std_{name}_ms": float(np.std(values)),
        f"p99_{name}_ms": float(np.percentile(values, 99)),
    }
