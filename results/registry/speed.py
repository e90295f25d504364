"""Metrics that set a trial's speed against another's."""

from __future__ import annotations

import numpy as np

from results.compare import agreement
from results.compare.pairing import Versus
from results.compare.stats import geometric_mean
from results.metrics import latency
from results.metrics.arrays import Floats, RequestArrays
from results.metrics.work import ratio
from results.registry.metric import Metric, TrialInputs


def _same_repeat(t: TrialInputs) -> RequestArrays | None:
    """The reference's requests, unless another repeat stands in: speed is never compared so."""
    return t.reference if t.against and t.against.log_ratios is not None else None


def _throughput_ratio(t: TrialInputs) -> float | None:
    other, are_labels = _same_repeat(t), t.requests.labels is not None
    rate = latency.request_per_s if are_labels else latency.output_tok_per_s
    return ratio(rate(t.requests), rate(other)) if other is not None else None


def _inner_token_ratio(t: TrialInputs) -> float | None:
    other, inner = _same_repeat(t), latency.inner_token_latency_s
    return ratio(inner(other), inner(t.requests)) if other is not None else None


def _speedup(against: Versus | None) -> float | None:
    return _mean(against.log_ratios if against else None)


def _mean(logs: Floats | None) -> float | None:
    return geometric_mean(logs) if logs is not None else None


def _paired(against: Versus | None) -> int | None:
    logs = against.log_ratios if against else None
    return int((~np.isnan(logs)).sum()) if logs is not None else None


SPEED = (
    Metric(
        name="speedup",
        section="speed",
        text="The reference's decode time per output token (`tpot_s`) divided by this backend's, "
        "paired on the same request in the same repeat; geometric mean over the pairs.",
        formula=lambda t: _speedup(t.against),
        needs="reference",
        better="larger",
        pooled="pairs",
        void_with="reference speed",
        label="Speed-up",
        short="speed-up",
    ),
    Metric(
        name="speedup_low",
        section="speed",
        text="The lower end of its 95% interval: t, on crossed components of requests and repeats.",
        formula=None,
        better="larger",
        pooled="pairs",
        void_with="reference speed",
    ),
    Metric(
        name="speedup_high",
        section="speed",
        text="The upper end of that interval.",
        formula=None,
        better="larger",
        pooled="pairs",
        void_with="reference speed",
    ),
    Metric(
        name="speedup_repeats",
        section="speed",
        text="Repeats that the interval rests on. With one it covers how requests differ, and not "
        "what a machine does from repeat to repeat.",
        formula=None,
        pooled="pairs",
    ),
    Metric(
        name="speedup_more_repeats",
        section="speed",
        text="So many more repeats of the same requests would leave 1 out of the interval, in 4 of "
        "5 experiments, if the speed-up is the one found: 0 where it is out, empty where 100 "
        "repeats would not do or one repeat is all there is.",
        formula=None,
        pooled="pairs",
        void_with="reference speed",
    ),
    Metric(
        name="speedup_requests",
        section="speed",
        text="Pairs that the trial's `speedup` is made of.",
        formula=lambda t: _paired(t.against),
        needs="reference",
    ),
    Metric(
        name="speedup_matched",
        section="speed",
        text="`speedup` with both answers of a pair cut where the shorter one ends (at the end of "
        "the commit that reaches it): what a longer answer goes on with, at more context, counts "
        "on neither side.",
        formula=lambda t: _mean(t.against.matched if t.against else None),
        needs="reference",
        better="larger",
        pooled="pairs",
        void_with="reference speed",
    ),
    Metric(
        name="speedup_matched_low",
        section="speed",
        text="The lower end of its 95% interval.",
        formula=None,
        better="larger",
        pooled="pairs",
        void_with="reference speed",
    ),
    Metric(
        name="speedup_matched_high",
        section="speed",
        text="The upper end of that interval.",
        formula=None,
        better="larger",
        pooled="pairs",
        void_with="reference speed",
    ),
    Metric(
        name="throughput_ratio",
        section="speed",
        text="`output_tok_per_s` / the reference's of the same repeat (the early-exit paper, "
        "figure 1); of labels `request_per_s` / the reference's.",
        formula=_throughput_ratio,
        needs="reference",
        better="larger",
        unequal_work=True,
        void_with="reference speed",
    ),
    Metric(
        name="inner_token_latency_ratio",
        section="speed",
        text="The reference's `inner_token_latency_s` of the same repeat / this (the "
        "early-exit paper, figure 2).",
        formula=_inner_token_ratio,
        needs="reference",
        better="larger",
        void_with="reference speed",
    ),
)
NATIVE = (
    Metric(
        name="consistency_native",
        section="answers",
        text="`consistency_ratio` against `autoregressive`: plain decoding on the same engine.",
        formula=lambda t: agreement.consistency_ratio(t.native.agreement) if t.native else None,
        needs="native",
        better="larger",
        void_with="native answers",
    ),
    Metric(
        name="speedup_native",
        section="speed",
        text="`speedup` against `autoregressive`: plain decoding on the same engine, with the same "
        "kernels and threads where it was run so, that the ratio is the algorithm's alone.",
        formula=lambda t: _speedup(t.native),
        needs="native",
        better="larger",
        pooled="pairs",
        void_with="native speed",
    ),
    Metric(
        name="speedup_native_low",
        section="speed",
        text="The lower end of its 95% interval.",
        formula=None,
        better="larger",
        pooled="pairs",
        void_with="native speed",
    ),
    Metric(
        name="speedup_native_high",
        section="speed",
        text="The upper end of that interval.",
        formula=None,
        better="larger",
        pooled="pairs",
        void_with="native speed",
    ),
    Metric(
        name="speedup_native_repeats",
        section="speed",
        text="Repeats that the interval rests on. With one it covers how requests differ, and not "
        "what a machine does from repeat to repeat.",
        formula=None,
        pooled="pairs",
    ),
    Metric(
        name="speedup_native_more_repeats",
        section="speed",
        text="So many more repeats of the same requests would leave 1 out of the interval, in 4 of "
        "5 experiments, if the speed-up is the one found: 0 where it is out, empty where 100 "
        "repeats would not do or one repeat is all there is.",
        formula=None,
        pooled="pairs",
        void_with="native speed",
    ),
    Metric(
        name="speedup_native_requests",
        section="speed",
        text="Pairs that the trial's `speedup_native` is made of.",
        formula=lambda t: _paired(t.native),
        needs="native",
    ),
)
