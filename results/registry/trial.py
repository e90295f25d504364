"""Metrics of one trial from its stamps and its record: counts, resources, rates and times."""

from __future__ import annotations

from results.compare import quality
from results.metrics import distribution, latency
from results.metrics.arrays import Floats
from results.registry.metric import Metric, TrialInputs


def _good_and_right(t: TrialInputs) -> float | None:
    right = quality.is_right(t.requests, t.pairs if t.against else None)
    return quality.good_and_right_per_s(t.requests, t.record.trial.slo, right)


def _decode_tok_per_s(t: TrialInputs) -> Floats:
    return latency.decode_tok_per_s(t.requests)


COUNTS = (
    Metric(
        name="n_requests",
        section="counts",
        text="Requests of the trial.",
        formula=lambda t: len(t.requests),
    ),
    Metric(
        name="n_completed",
        section="counts",
        text="Those that ended with `stop` or `length`.",
        formula=lambda t: int(t.requests.completed.sum()),
    ),
    Metric(
        name="n_errors",
        section="counts",
        text="Those that failed.",
        formula=lambda t: int(t.requests.failed.sum()),
        better="smaller",
    ),
    Metric(
        name="n_unfinished",
        section="counts",
        text="Those that the end of the trial cut off.",
        formula=lambda t: int((~t.requests.completed & ~t.requests.failed).sum()),
        better="smaller",
    ),
    Metric(
        name="output_tokens",
        section="counts",
        unit="tokens",
        text="Output tokens of the completed requests.",
        formula=lambda t: latency.output_tokens(t.requests),
    ),
)
REALISED_RATE = Metric(
    name="realised_rate_per_s",
    section="rates",
    unit="requests/s",
    text="(requests - 1) / (last - first scheduled arrival) of an open load: the rate that its "
    "arrivals came to. A random schedule of few requests is off the rate that was asked for.",
    formula=lambda t: (
        latency.arrival_rate_per_s(t.requests) if t.record.trial.load.is_open else None
    ),
)
RESOURCES = (
    Metric(
        name="setup_s",
        section="resources",
        unit="s",
        text="Loading the engine; shared by the trials of one child process.",
        of_a_load=True,
        formula=lambda t: t.record.setup_s,
        needs="record",
        better="smaller",
    ),
    Metric(
        name="peak_memory_bytes",
        section="resources",
        unit="bytes",
        text="On a machine with a GPU the device memory of the engine's processes at the end of "
        "the load (where the driver does not list them, by what it grew while the engine was "
        "loaded and at work), on any other the peak of their resident sets, summed; undefined for "
        "a server, whose memory is not the client's.",
        formula=lambda t: t.record.peak_memory_bytes,
        better="smaller",
    ),
    Metric(
        name="energy_j",
        section="resources",
        unit="J",
        text="NVML's counter over the load, of the whole devices that the engine is on; undefined "
        "without a GPU, on a slice of one (MIG) and for a server.",
        formula=lambda t: t.record.energy_j,
        better="smaller",
    ),
)
RATES = (
    Metric(
        name="request_per_s",
        section="rates",
        unit="requests/s",
        text="Completed requests / window: the time from the first submit to the last commit.",
        formula=lambda t: latency.request_per_s(t.requests),
        better="larger",
        unequal_work=True,
    ),
    Metric(
        name="output_tok_per_s",
        section="rates",
        unit="tokens/s",
        text="Output tokens of completed requests / window (first submit to last commit); "
        "undefined where answers are labels, whose rate is `request_per_s`.",
        formula=lambda t: latency.output_tok_per_s(t.requests),
        better="larger",
        label="Throughput",
        short="tok/s",
    ),
    Metric(
        name="inner_token_latency_s",
        section="time",
        unit="s",
        text="Sum over requests of (last commit - first commit) / sum of all their tokens (the "
        "early-exit paper, section 5.2: the first tokens are in the divisor).",
        formula=lambda t: latency.inner_token_latency_s(t.requests),
        better="smaller",
    ),
    Metric(
        name="goodput_req_per_s",
        section="rates",
        unit="requests/s",
        text="Requests that meet every bound of the objective (SLO) / window. Errors and "
        "unfinished requests count as missed.",
        formula=lambda t: latency.goodput_req_per_s(t.requests, t.record.trial.slo),
        better="larger",
        unequal_work=True,
        label="Goodput",
        short="goodput",
    ),
    Metric(
        name="goodput_tok_per_s",
        section="rates",
        unit="tokens/s",
        text="Output tokens of the requests that meet every bound of the objective / window; "
        "undefined where answers are labels.",
        formula=lambda t: latency.goodput_tok_per_s(t.requests, t.record.trial.slo),
        better="larger",
    ),
    Metric(
        name="good_and_right_per_s",
        section="rates",
        unit="requests/s",
        text="Requests within the objective whose answer scores 1 (`pass_at_1`, `exact_match`; not "
        "the flexible one) or equals the reference's / window.",
        formula=_good_and_right,
        better="larger",
        unequal_work=True,
        void_with="reference answers",
    ),
)
TIMES = (
    Metric(
        name="ttft_s",
        section="time",
        unit="s",
        text="Time to first token: first commit - scheduled. In an open loop a request is "
        "scheduled when the arrival process says so, whether or not the client was on time; in a "
        "closed loop when it is submitted.",
        formula=lambda t: latency.ttft_s(t.requests),
        each="sample",
        better="smaller",
        label="TTFT",
        short="TTFT",
    ),
    Metric(
        name="tpot_s",
        section="time",
        unit="s",
        text="Time per output token: (last commit - first commit) / tokens after the first "
        "commit. Undefined, not 0, when everything came in one commit.",
        formula=lambda t: latency.tpot_s(t.requests),
        each="sample",
        better="smaller",
        label="TPOT",
        short="TPOT",
    ),
    Metric(
        name="itl_s",
        section="time",
        unit="s",
        text="Inter-token latency: the gap between two commits divided by the tokens of the later "
        "one; the values of a request add up to last commit - first commit.",
        formula=lambda t: latency.itl_s(t.requests),
        each="token",
        better="smaller",
    ),
    Metric(
        name="e2e_s",
        section="time",
        unit="s",
        text="End-to-end latency: last commit - scheduled.",
        formula=lambda t: latency.e2e_s(t.requests),
        each="sample",
        better="smaller",
        unequal_work=True,
        label="End to end",
        short="e2e",
    ),
    Metric(
        name="decode_tok_per_s",
        section="time",
        unit="tokens/s",
        text="Tokens after the first commit / (last commit - first commit).",
        formula=lambda t: t.once(_decode_tok_per_s),
        each="sample",
        better="larger",
    ),
    Metric(
        name="submit_lag_s",
        section="time",
        unit="s",
        text="Submit - scheduled: how late the load loop was, whoever's fault it was.",
        formula=lambda t: latency.submit_lag_s(t.requests),
        each="request",
        better="smaller",
    ),
    Metric(
        name="client_lag_s",
        section="time",
        unit="s",
        text="How late a request left by the harness's own fault: the part of `submit_lag_s` that "
        "no engine in this process caused.",
        formula=lambda t: latency.client_lag_s(t.requests),
        each="request",
        better="smaller",
    ),
    Metric(
        name="stamp_lag_s",
        section="time",
        unit="s",
        text="By how much a stamp can be later than the bytes it belongs to; undefined for engines "
        "in this process.",
        formula=lambda t: latency.stamp_lag_s(t.requests),
        each="commit",
        better="smaller",
    ),
)
MEAN_DECODE_RATE = Metric(
    name="decode_tok_per_s",
    section="time",
    unit="tokens/s",
    text="The mean, `decode_tok_per_s_mean`, under the metric's own name too.",
    formula=lambda t: distribution.mean(t.once(_decode_tok_per_s)),
    better="larger",
)
