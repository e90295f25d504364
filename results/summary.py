"""One trial's metrics as a flat mapping of names to plain numbers, None where undefined."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from harness.core.names import QUALITY, TOKEN_COUNTING, chat_words
from harness.core.nouns import TrialRecord
from results import registry
from results.compare.pairing import ComparableTrials, Member
from results.metrics.distribution import describe
from results.registry import TrialInputs


def metrics(trial: TrialInputs) -> dict[str, Any]:
    """Every metric of one trial by name, always the same names. All but `setup_s` are None for a
    trial that did not end well, what belongs to a cell is for every trial, what is said of answers
    is for a replay, whose answers are chance, and all else but counts where answers alone count."""
    found: dict[str, Any] = {}
    quality = trial.record.trial.load.kind == QUALITY
    for metric in registry.METRICS:
        known = metric.formula is not None and trial.has(metric.needs)
        known = known and not (metric.is_of_answers and trial.record.is_replay)
        known = known and (not quality or metric.is_of_answers or metric.section == "counts")
        value = metric.formula(trial) if metric.formula and known else None
        found |= describe(value, metric.name) if metric.each else {metric.name: _plain(value)}
    return found


def _plain(value: Any) -> Any:
    """As JSON holds it: no numpy scalar, and None for what is no number."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def identity(member: Member, group: ComparableTrials) -> dict[str, Any]:
    """What was run, without the repeat: the columns that name a cell."""
    record, trial = member.stored.record, member.trial
    reference = next(iter(group.reference.values()), None)
    return {
        "backend": trial.backend,
        "options": dict(trial.options),
        "label": group.labels.get(member.variant),
        "provenance": record.backend.provenance if record.backend else None,
        "lossless": record.backend.lossless if record.backend else None,
        TOKEN_COUNTING: record.backend.options.get(TOKEN_COUNTING) if record.backend else None,
        "is_reference": reference is not None and member.variant == reference.variant,
        "model": trial.model.label(),
        "dtype": trial.model.dtype,
        "workload": trial.workload.name,
        "source": trial.workload.source,
        "chat": chat_words(trial.workload.options) or None,
        "load": trial.load.label(),
        "load_kind": trial.load.kind,
        "concurrency": trial.load.concurrency,
        "rate": trial.load.rate,
        "burstiness": trial.load.burstiness,
        "requests": trial.requests,
        "duration_s": trial.duration_s,
        "seed": trial.seed,
        **_settings(record),
    }


def _settings(record: TrialRecord) -> dict[str, Any]:
    """What else keeps cells apart: a folder may hold several machines' trials, and those of an
    experiment before it was changed."""
    trial = record.trial
    return {
        **{f"slo_{name}": bound for name, bound in dataclasses.asdict(trial.slo).items()},
        "max_new_tokens": trial.max_new_tokens,
        "ignore_eos": trial.ignore_eos,
        "reload": bool(trial.reload),
        "temperature": trial.sampling.temperature,
        "top_p": trial.sampling.top_p,
        "workload_checksum": trial.workload.checksum,
        "load_checksum": trial.load.checksum,
        "model_checksum": trial.model.checksum,
        "machine": record.environment.get("fingerprint"),
    }
