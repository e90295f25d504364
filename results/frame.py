"""Tidy pandas frames of trials, requests and commits. Undefined values are NaN or None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from harness.core.nouns import Slo, canonical_json, to_json
from results import registry
from results.compare import agreement, quality
from results.compare.pairing import ComparableTrials, Member, Versus, versus
from results.metrics import latency
from results.metrics.arrays import Floats, Ints, RequestArrays
from results.prompts import PromptLengths, asked_prompts
from results.registry import Metric, TrialInputs

_REQUEST: Mapping[str, str] = {
    "key": "the trial",
    "backend": "",
    "options": "JSON text",
    "variant": "backend and options: 'adadecode gamma=0.9'",
    "label": "what the experiment calls it, else the variant",
    "valid": "whether the trial is",
    "model": "as in tables: '0.5b, 8 layers'",
    "workload": "",
    "workload_checksum": "with `prompt_id` a row of the prompts' frame",
    "load": "as in tables: 'closed c=8'",
    "repeat": "",
    "request_id": "equal across backends, repeats and loads",
    "prompt_id": "`request_id` of its prompt, which may be asked again in one trial",
    "prompt_tokens": "NaN where not known",
    "finished": "stop, length, error, or None when the trial ended first",
    "error": "",
    "n_tokens": "output tokens, the first stop token included",
    "scheduled_s": "since the first scheduled request of the trial",
}
_AGAINST: Mapping[str, str] = {
    "equal_to_reference": "1.0 or 0.0, NaN where the reference has no such request",
    "first_divergence": "index of the first differing token, NaN where equal",
    "first_divergence_margin": "the reference's top-2 logit margin there, where it stored one",
    "rouge_l_to_full": "",
    "speedup": "decode time per token of the reference / of this, same request and repeat",
    "speedup_steps": "steps per token, likewise: `speedup` = `speedup_steps` x `speedup_step_time`",
    "speedup_step_time": "decode time per step, likewise",
    "speedup_length": "tokens after the first commit, likewise",
}
_REQUEST_DTYPES: Mapping[str, str] = {
    **dict.fromkeys(("key", "backend", "options", "variant", "label", "model"), "str"),
    **dict.fromkeys(("workload", "load", "request_id", "prompt_id"), "str"),
    **dict.fromkeys(("workload_checksum", "finished", "error", "text", "telemetry"), "string"),
    "valid": "bool",
    "repeat": "int64",
    "n_tokens": "int64",
    "meets_slo": "boolean",
}
"""Any other column is float64."""
_NESTED = (
    "exits_by_layer",
    "exits_by_batch",
    "drafts_by_position",
    "by_stage",
    "plans",
    "planned_windows",
)
"""Metrics that are lists or mappings."""
_TRIAL_DTYPES: Mapping[str, str] = {
    **dict.fromkeys(("provenance", "token_counting", "error", "started_at"), "string"),
    **dict.fromkeys(("workload_checksum", "load_checksum", "model_checksum", "machine"), "string"),
    "first_divergence_request": "string",
    "lossless": "boolean",
    **dict.fromkeys(_NESTED, "object"),
    **dict.fromkeys(("concurrency", "rate", "burstiness", "duration_s", "temperature"), "float64"),
    **dict.fromkeys(("top_p", "stands_in_for", *(f"slo_{n}" for n in to_json(Slo()))), "float64"),
}
"""Of what may be undefined; any other metric is float64."""
COMMIT_COLUMNS: Mapping[str, str] = {
    "key": "the trial (categorical)",
    "variant": "backend and options (categorical)",
    "label": "what the experiment calls it, else the variant (categorical)",
    "valid": "whether the trial is",
    "request_id": "(categorical)",
    "index": "0 for a request's first commit",
    "t_s": "since the first scheduled request of the trial",
    "tokens": "output tokens of the commit",
}
_COMMIT_DTYPES: Mapping[str, str] = {
    **dict.fromkeys(("key", "variant", "label", "request_id"), "category"),
    "valid": "bool",
    "index": "int64",
    "t_s": "float64",
    "tokens": "int64",
}


def request_columns() -> dict[str, str]:
    """Columns of `request_frames` with what they hold: of each trial's requests every metric that
    has one value per request, NaN in those of a sample where the request is none, and their
    scores, NaN where the workload has none."""
    metrics = [*_of_each("request"), *_of_each("sample")]
    return {
        **_REQUEST,
        **{metric.name: metric.text for metric in metrics},
        "meets_slo": "completed within the trial's objective, NA where it has none",
        **{metric.name: metric.text for metric in registry.scores()},
        **_AGAINST,
        "text": "the decoded answer",
        "telemetry": "JSON text of the backend's counts",
    }


class TrialNames(NamedTuple):
    """What every frame says of a row's trial."""

    variant: str
    label: str
    valid: bool


def names(rows: Iterable[Mapping[str, Any]]) -> dict[str, TrialNames]:
    """By trial key; `rows`: of `results.rows.summaries`."""
    found = {}
    for row in rows:
        own = variant_text(row["backend"], row["options"])
        found[row["key"]] = TrialNames(own, row["label"] or own, bool(row["valid"]))
    return found


def variant_text(backend: str, options: Mapping[str, Any]) -> str:
    """A backend and its options as one text: ``adadecode gamma=0.9 max_drafts=5``."""
    told = (f"{key}={_option_text(value)}" for key, value in sorted(options.items()))
    return " ".join([backend, *told])


def _option_text(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(to_json(value))


def trial_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per trial, with values that can be grouped by: `options` is JSON text, what was a
    list of texts a tuple. Dtypes do not depend on what the trials have."""
    known = names(rows)
    told = [
        {
            **row,
            "options": canonical_json(to_json(row["options"])),
            **known[row["key"]]._asdict(),
            **{name: tuple(row[name]) for name in ("invalid_reasons", "void_metrics")},
        }
        for row in rows
    ]
    frame = pd.DataFrame(told)
    metrics = dict.fromkeys((key for m in registry.METRICS for key in m.keys), "float64")
    dtypes = {**metrics, **_TRIAL_DTYPES}
    # copied: pandas warns whoever adds a column to a frame of many parts
    return frame.astype({name: dtypes[name] for name in frame.columns if name in dtypes}).copy()


def request_frames(
    members: Iterable[tuple[Member, ComparableTrials]],
    known: Mapping[str, TrialNames],
    lengths: PromptLengths,
) -> pd.DataFrame:
    """One row per request, with the columns of `request_columns`. `known`: by trial key."""
    names = list(request_columns())
    frames = [_request_frame(*one, known, lengths)[names] for one in members]
    found = pd.concat(frames or [pd.DataFrame(columns=names)], ignore_index=True)
    return found.astype({name: _REQUEST_DTYPES.get(name, "float64") for name in names})


def commit_frames(
    members: Iterable[tuple[Member, ComparableTrials]], known: Mapping[str, TrialNames]
) -> pd.DataFrame:
    """One row per commit, with the columns of `COMMIT_COLUMNS`. `known`: by trial key."""
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
        return pd.DataFrame(columns=list(COMMIT_COLUMNS)).astype(dict(_COMMIT_DTYPES))
    trial, request, *rest = (np.concatenate(column) for column in zip(*parts, strict=True))
    told = [known[key] for key in keys]
    columns: list[Any] = [
        pd.Categorical.from_codes(trial, categories=pd.Index(keys)),
        pd.Categorical([one.variant for one in told]).take(trial),
        pd.Categorical([one.label for one in told]).take(trial),
        np.array([one.valid for one in told])[trial],
        pd.Categorical.from_codes(request, categories=pd.Index(list(codes))),
        *rest,
    ]
    return pd.DataFrame(dict(zip(COMMIT_COLUMNS, columns, strict=True)))


def _request_frame(
    member: Member,
    group: ComparableTrials,
    known: Mapping[str, TrialNames],
    lengths: PromptLengths,
) -> pd.DataFrame:
    requests, trial = member.requests, member.trial
    assert requests is not None
    met = latency.meets_slo(requests, trial.slo)
    prompts, tokens = asked_prompts(requests.ids, lengths(str(trial.workload.checksum)))
    columns: dict[str, Any] = {
        "key": member.stored.record.key,
        "backend": trial.backend,
        "options": canonical_json(dict(trial.options)),
        **known[member.stored.record.key]._asdict(),
        "model": trial.model.label(),
        "workload": trial.workload.name,
        "workload_checksum": trial.workload.checksum,
        "load": trial.load.label(),
        "repeat": trial.repeat,
        "request_id": requests.ids,
        "prompt_id": prompts,
        "prompt_tokens": tokens,
        "finished": pd.array(requests.finished, dtype="string"),
        "error": pd.array(requests.errors.to_pylist(), dtype="string"),
        "n_tokens": requests.tokens,
        "scheduled_s": (requests.scheduled_ns - _origin_ns(requests)) / latency.NS,
        "meets_slo": pd.array(met if trial.slo != Slo() else [None] * len(met), dtype="boolean"),
        "text": pd.array(requests.texts.to_pylist(), dtype="string"),
        "telemetry": pd.array(requests.telemetry.to_pylist(), dtype="string"),
    }
    against, native = versus(member, group.reference), versus(member, group.native(member))
    own = TrialInputs(member.stored.record, requests, against, native)
    for metric in (*_of_each("request"), *_of_each("sample")):
        columns[metric.name] = _each_value(metric, own)
    for metric in registry.scores():
        columns[metric.name] = requests.scores.get(metric.name, np.nan)
    answers = not member.stored.record.is_replay
    return pd.DataFrame({**columns, **_comparison(requests, against, answers=answers)})


def _of_each(what: str) -> list[Metric]:
    return [metric for metric in registry.METRICS if metric.each == what]


def _each_value(metric: Metric, trial: TrialInputs) -> Floats:
    """(R,) values of a metric that has one for each request, or for each that is a sample."""
    requests = trial.requests
    if metric.formula is None or not trial.has(metric.needs):
        return np.full(len(requests), np.nan)
    found: Floats = metric.formula(trial)
    if metric.each == "request":
        return found
    return _scatter(requests, np.flatnonzero(requests.sampled), found)


def _comparison(
    requests: RequestArrays, found: Versus | None, *, answers: bool
) -> dict[str, Floats]:
    """The columns of one trial that set it against the reference; NaN for the answers where these
    say nothing."""
    columns = {name: np.full(len(requests), np.nan) for name in _AGAINST}
    if found is None or found.other.requests is None:
        return columns
    if found.log_ratios is not None:
        columns["speedup"] = np.exp(found.log_ratios)
        columns |= {name: np.exp(logs) for name, logs in (found.parts or {}).items()}
    if not answers:
        return columns
    pairs, reference = found.agreement, found.other.requests
    margins = np.full(len(pairs), np.nan)
    for place in np.flatnonzero(~pairs.equal()):
        margin = agreement.margin_at_divergence(pairs, reference, int(place))
        margins[place] = np.nan if margin is None else margin
    values = {
        "equal_to_reference": pairs.equal().astype(float),
        "first_divergence": np.where(pairs.equal(), np.nan, pairs.divergence),
        "first_divergence_margin": margins,
        "rouge_l_to_full": quality.rouge_l_to_full(requests, reference, pairs),
    }
    return columns | {n: _scatter(requests, pairs.rows, column) for n, column in values.items()}


def _scatter(requests: RequestArrays, rows: Ints, values: Floats) -> Floats:
    column = np.full(len(requests), np.nan)
    column[rows] = values
    return column


def _origin_ns(requests: RequestArrays) -> int:
    return int(requests.scheduled_ns.min()) if len(requests) else 0
