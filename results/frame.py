"""Tidy pandas frames of trials, requests and commits. Undefined values are NaN or None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.core.nouns import canonical_json
from results.compare import agreement, quality
from results.compare.pairing import ComparableTrials, Member, versus
from results.metrics import latency
from results.metrics.arrays import Floats, Ints, RequestArrays

REQUEST_COLUMNS: Mapping[str, str] = {
    "key": "the trial",
    "backend": "",
    "options": "JSON text",
    "workload": "",
    "load": "as in tables: 'closed c=8'",
    "repeat": "",
    "request_id": "equal across backends, repeats and loads",
    "finished": "stop, length, error, or None when the trial ended first",
    "error": "",
    "n_tokens": "output tokens, the first stop token included",
    "scheduled_s": "since the first scheduled request of the trial",
    "submit_lag_s": "submit - scheduled",
    "client_lag_s": "the harness's own part of it",
    "ttft_s": "NaN unless completed, as the next three",
    "tpot_s": "",
    "e2e_s": "",
    "decode_tok_per_s": "",
    "meets_slo": "",
    "rouge_l_to_label": "task scores, NaN where the workload has none",
    "pass_at_1": "",
    "exact_match": "",
    "exact_match_flexible": "",
    "equal_to_reference": "1.0 or 0.0, NaN where the reference has no such request",
    "first_divergence": "index of the first differing token, NaN where equal",
    "first_divergence_margin": "the reference's top-2 logit margin there, where it stored one",
    "rouge_l_to_full": "",
    "speedup": "decode time per token of the reference / of this, same request and repeat",
    "text": "the decoded answer",
    "telemetry": "JSON text of the backend's counts",
}
COMMIT_COLUMNS: Mapping[str, str] = {
    "key": "the trial (categorical)",
    "request_id": "(categorical)",
    "index": "0 for a request's first commit",
    "t_s": "since the first scheduled request of the trial",
    "tokens": "output tokens of the commit",
}
_LATENCIES = ("ttft_s", "tpot_s", "e2e_s", "decode_tok_per_s")
_OF_ANSWERS = (
    "equal_to_reference",
    "first_divergence",
    "first_divergence_margin",
    "rouge_l_to_full",
)


def trial_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per trial. Metrics that no trial has are columns of NaN."""
    frame = pd.DataFrame(list(rows))
    empty = [name for name in frame.columns if frame[name].isna().all()]
    return frame.astype(dict.fromkeys(empty, float))


def request_frames(members: Iterable[tuple[Member, ComparableTrials]]) -> pd.DataFrame:
    """One row per request, with the columns of `REQUEST_COLUMNS`."""
    frames = [_request_frame(member, group) for member, group in members]
    if not frames:
        return pd.DataFrame(columns=list(REQUEST_COLUMNS))
    return pd.concat(frames, ignore_index=True)[list(REQUEST_COLUMNS)]


def commit_frames(members: Iterable[tuple[Member, ComparableTrials]]) -> pd.DataFrame:
    """One row per commit, with the columns of `COMMIT_COLUMNS`."""
    keys: list[str] = []
    codes: dict[str, int] = {}
    parts: list[tuple[Ints, Ints, Ints, Floats, Ints]] = []
    for member, _ in members:
        requests = member.requests
        assert requests is not None
        counts = np.diff(requests.commit_start)
        code = np.array([codes.setdefault(i, len(codes)) for i in requests.ids], np.int64)
        index = np.arange(len(requests.commit_ns)) - np.repeat(requests.commit_start[:-1], counts)
        times = (requests.commit_ns - _origin_ns(requests)) / latency.NS
        trial = np.full(len(index), len(keys))
        keys.append(member.stored.record.key)
        parts.append((trial, np.repeat(code, counts), index, times, requests.commit_tokens))
    if not parts:
        return pd.DataFrame(columns=list(COMMIT_COLUMNS))
    columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    columns[0] = pd.Categorical.from_codes(columns[0], categories=pd.Index(keys))
    columns[1] = pd.Categorical.from_codes(columns[1], categories=pd.Index(list(codes)))
    return pd.DataFrame(dict(zip(COMMIT_COLUMNS, columns, strict=True)))


def prompt_frame(workloads: Iterable[tuple[str, Sequence[Mapping[str, Any]]]]) -> pd.DataFrame:
    """One row per request of each (workload name, stored prompts)."""
    rows = [{"workload": name, **row} for name, stored in workloads for row in stored]
    names = ["workload", "request_id", "prompt_text", "prompt_tokens", "answer"]
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=names)


def _request_frame(member: Member, group: ComparableTrials) -> pd.DataFrame:
    requests, trial = member.requests, member.trial
    assert requests is not None
    columns: dict[str, Any] = {
        "key": member.stored.record.key,
        "backend": trial.backend,
        "options": canonical_json(dict(trial.options)),
        "workload": trial.workload.name,
        "load": trial.load.label(),
        "repeat": trial.repeat,
        "request_id": requests.ids,
        "finished": pd.array(requests.finished, dtype="string"),
        "error": pd.array(requests.errors.to_pylist(), dtype="string"),
        "n_tokens": requests.tokens,
        "scheduled_s": (requests.scheduled_ns - _origin_ns(requests)) / latency.NS,
        "submit_lag_s": latency.submit_lag_s(requests),
        "client_lag_s": latency.client_lag_s(requests),
        "meets_slo": latency.meets_slo(requests, trial.slo),
        "text": pd.array(requests.texts.to_pylist(), dtype="string"),
        "telemetry": pd.array(requests.telemetry.to_pylist(), dtype="string"),
    }
    sampled = np.flatnonzero(requests.sampled)
    for name in _LATENCIES:
        columns[name] = _scatter(requests, sampled, getattr(latency, name)(requests))
    for name in quality.SCORES:
        columns[name] = requests.scores.get(name, np.nan)
    return pd.DataFrame({**columns, **_comparison(member, group)})


def _comparison(member: Member, group: ComparableTrials) -> dict[str, Floats]:
    """The columns of one trial that set it against the reference."""
    requests, found = member.requests, versus(member, group.reference)
    assert requests is not None
    if found is None or found.other.requests is None:
        return {name: np.full(len(requests), np.nan) for name in (*_OF_ANSWERS, "speedup")}
    pairs, reference = found.agreement, found.other.requests
    margins = np.full(len(pairs), np.nan)
    for place in np.flatnonzero(~pairs.equal()):
        margin = agreement.margin_at_divergence(pairs, reference, int(place))
        margins[place] = np.nan if margin is None else margin
    values = (
        pairs.equal().astype(float),
        np.where(pairs.equal(), np.nan, pairs.divergence),
        margins,
        quality.rouge_l_to_full(requests, reference, pairs),
    )
    columns = {
        name: _scatter(requests, pairs.rows, column)
        for name, column in zip(_OF_ANSWERS, values, strict=True)
    }
    logs = found.log_ratios
    return {**columns, "speedup": np.full(len(requests), np.nan) if logs is None else np.exp(logs)}


def _scatter(requests: RequestArrays, rows: Ints, values: Floats) -> Floats:
    column = np.full(len(requests), np.nan)
    column[rows] = values
    return column


def _origin_ns(requests: RequestArrays) -> int:
    return int(requests.scheduled_ns.min()) if len(requests) else 0
