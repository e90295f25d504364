"""Small stored experiments for the tests: generations with stamps chosen by hand."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backends.early_exit.plugin.telemetry import DecodedStep, StepLog
from harness.core.nouns import (
    BackendInfo,
    FinishReason,
    Generation,
    Load,
    Measured,
    Model,
    Slo,
    Status,
    Trial,
    TrialRecord,
    Validity,
    Workload,
)

MS = 1_000_000
VALID = Validity(valid=True)


def generation(
    request_id: str,
    commit_ms: Sequence[float],
    tokens: Sequence[int] | None = None,
    *,
    scheduled_ms: float = 0,
    submitted_ms: float | None = None,
    lag_ms: float = 0,
    ids: Sequence[int] | None = None,
    finished: FinishReason | None = "stop",
    telemetry: Mapping[str, float] | None = None,
) -> Generation:
    """A generation with commits at `commit_ms` milliseconds, one token each unless told."""
    counts = list(tokens if tokens is not None else [1] * len(commit_ms))
    return Generation(
        request_id=request_id,
        scheduled_ns=round(scheduled_ms * MS),
        submitted_ns=round((scheduled_ms if submitted_ms is None else submitted_ms) * MS),
        client_lag_ns=round(lag_ms * MS),
        commit_ns=[round(t * MS) for t in commit_ms],
        commit_tokens=counts,
        token_ids=list(ids if ids is not None else range(sum(counts))),
        finished=finished,
        error="connection dropped" if finished == "error" else None,
        telemetry=dict(telemetry or {}),
    )


def told(name: str, options: Mapping[str, Any], *, lossless: bool = True) -> BackendInfo:
    """A backend that tells these options, and what it measured by the names below."""
    rest = dict(options)
    measured = Measured(
        costs=rest.pop("costs", None),
        predicted_speedup=rest.pop("predicted_speedup", None),
        calibration=rest.pop("calibration_statement", None),
    )
    return BackendInfo(name, "1", "re-implementation", rest, lossless, measured=measured)


def decoded(steps: Iterable[DecodedStep]) -> list[Generation]:
    """A generation per request of these steps, with what they count of it."""
    log, tokens = StepLog(), Counter[str]()
    for step in steps:
        log.note(step, step.names)
        tokens.update(step.names)
    return [
        generation(name, range(1, 2 + count), telemetry=log.take(name, count))
        for name, count in tokens.items()
    ]


def trial(backend: str = "vllm", **changes: Any) -> Trial:
    """A trial of a made-up backend; `changes` replace fields."""
    base = Trial(
        backend=backend,
        options={},
        model=Model("demo"),
        workload=Workload("gsm8k", checksum="c0ffee"),
        load=Load("closed", concurrency=8),
        requests=2,
        max_new_tokens=16,
        slo=Slo(),
    )
    return dataclasses.replace(base, **changes)


def record(
    trial: Trial,
    generations: Sequence[Generation],
    *,
    status: Status = "ok",
    validity: Validity = VALID,
    texts: Mapping[str, str] | None = None,
    scores: Mapping[str, Mapping[str, float]] | None = None,
    lossless: bool = True,
    started_at: str = "2026-01-01T00:00:00+00:00",
    environment: Mapping[str, Any] | None = None,
    **changes: Any,
) -> TrialRecord:
    """A finished record with the key that the trial has on the machine "test"."""
    info = BackendInfo(
        name=trial.backend,
        version="1",
        provenance="re-implementation",
        options=trial.options,
        lossless=lossless,
    )
    return TrialRecord(
        key=trial.key("test"),
        trial=trial,
        environment={"cpu": "made up", **(environment or {})},
        status=status,
        backend=info,
        validity=validity,
        generations=generations,
        texts=texts or {},
        scores=scores or {},
        started_at=started_at,
        **changes,
    )


def a_record(repeat: int = 0, **changes: Any) -> TrialRecord:
    """A record that has something in every field."""
    generations = [
        generation("r0", [10, 20, 35], [1, 2, 1], telemetry={"drafted": 4.0, "accepted": 2.0}),
        generation("r1", [11], finished="error"),
        generation("r2", [], finished=None),
    ]
    return record(
        trial(repeat=repeat, options={"gamma": 0.75, "engine": {"block": 16}}),
        generations,
        texts={"r0": "fünf – 5\u2028\x00", "r1": ""},
        scores={"r0": {"exact_match": 1.0}, "r1": {"rouge_l_to_label": 0.25}},
        validity=Validity(False, ("too-few-samples: 3 requests",)),
        peak_memory_bytes=123,
        setup_s=1.5,
        **changes,
    )
