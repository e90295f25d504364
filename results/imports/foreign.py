"""A load as another tool stored it, and the trial that it makes.

Such a tool stamps when a request left and when chunks came, and says how many tokens there were;
which token came when it does not say: tokens are shared out over the chunks. Latencies count from
when a request was due where the tool says so, else from its sending.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.core.names import CACHED_TOKENS, SERVER
from harness.core.nouns import (
    IMPORTED,
    UNKNOWN_TOKEN,
    BackendInfo,
    FinishReason,
    Generation,
    Load,
    Model,
    Slo,
    Trial,
    TrialRecord,
    Validity,
    Workload,
    canonical_json,
    to_json,
)
from results.compare.reasons import slug

NS = 10**9
MAX_LATE_S = 0.005
"""p99, as of our own client: beyond it the tool is measured and not the server."""
SAMPLES = 2
"""Answers without which there is nothing to tell."""


@dataclass(frozen=True, slots=True)
class ForeignRequest:
    """One request. Times are seconds on one clock of the tool's."""

    prompt_tokens: int
    sent_s: float
    chunks_s: tuple[float, ...]
    """When each chunk of the answer came, ascending; none where it did not end well."""
    tokens: int
    """Of the answer, as many as chunks or more."""
    error: str | None = None
    text: str = ""
    due_s: float | None = None
    """When it was to be sent; None where the tool does not say."""
    cached_tokens: int | None = None
    """Of the prompt, that came from the server's cache; None where nobody counted them."""
    held_s: float | None = None
    """Until when it was held back, where the tool says so: for an answer that it continues, or for
    one of its load's places."""
    cut: bool = False
    """Whether the tool's time was over before it ended."""

    @property
    def late_s(self) -> float | None:
        """How late the tool itself sent it; None where nobody knows."""
        if self.due_s is None:
            return None
        return max(self.sent_s - max(self.due_s, self.held_s or self.due_s), 0.0)


def waited_for_a_place(requests: Iterable[ForeignRequest]) -> tuple[ForeignRequest, ...]:
    """Those of an open load with so many places at most: between when they were due and when they
    left nobody tells the tool's own lateness from the wait."""
    return tuple(replace(one, held_s=one.sent_s) for one in requests)


@dataclass(frozen=True, slots=True)
class ForeignLoad:
    """A load that another tool made."""

    tool: str
    """Its name, which becomes the backend's."""
    definitions: str
    """What its numbers mean where ours mean something else, in a line."""
    server: str
    """What it talked to, in its own word."""
    model: str
    load: Load
    started_at: str
    """ISO 8601."""
    requests: tuple[ForeignRequest, ...]
    doubts: tuple[str, ...] = ()
    """Reasons of `results.compare.reasons` that the file itself gives for which it is not valid."""


def imported_cell(found: ForeignLoad, name: str, workload: str, slo: Slo) -> Trial:
    """What a load is a repeat of, as its first one; arguments as `make_record`'s. How long answers
    could be no tool tells: `max_new_tokens` is 0."""
    asked = canonical_json([one.prompt_tokens for one in found.requests])
    return Trial(
        backend=found.tool,
        options={"run": name},
        model=Model(found.model, dtype="unknown"),
        workload=Workload(
            workload, source=IMPORTED, checksum=hashlib.sha256(asked.encode()).hexdigest()
        ),
        load=found.load,
        requests=len(found.requests),
        max_new_tokens=0,
        slo=slo,
    )


def make_record(
    found: ForeignLoad, name: str, workload: str, repeat: int, slo: Slo, *, cold: bool
) -> TrialRecord:
    """The trial that a load makes.

    Args:
        found: the load.
        name: what it is called among others of its tool.
        workload: the name of what was asked.
        repeat: which one of its cell's loads it is.
        slo: the objective for goodput.
        cold: the user says that no prompt's beginning came from a cache.
    """
    generations = [_generation(f"{i}", one) for i, one in enumerate(found.requests)]
    trial = replace(imported_cell(found, name, workload, slo), repeat=repeat)
    info = BackendInfo(
        found.tool,
        "unknown",
        IMPORTED,
        {"run": name, "server": found.server},
        lossless=None,
        capabilities=frozenset({SERVER}),
    )
    return TrialRecord(
        key=trial.key(IMPORTED, name),
        trial=trial,
        environment={"fingerprint": IMPORTED, "code": name, "cpu": "unknown", "packages": {}},
        status="ok" if any(g.finished == "stop" for g in generations) else "failed",
        error=None if any(g.finished == "stop" for g in generations) else "no request was answered",
        backend=info,
        validity=_verdict(found, cold=cold),
        generations=generations,
        texts={f"{i}": one.text for i, one in enumerate(found.requests) if one.chunks_s},
        started_at=found.started_at,
    )


def prompt_rows(found: ForeignLoad) -> list[dict[str, Any]]:
    """What the store keeps of a load's prompts: lengths, which are all that its tool tells."""
    return [
        {
            "request_id": f"{i}",
            "prompt_text": None,
            "prompt_tokens": one.prompt_tokens or None,
            "answer": None,
        }
        for i, one in enumerate(found.requests)
    ]


def _generation(name: str, one: ForeignRequest) -> Generation:
    sent = round(one.sent_s * NS)
    due = sent if one.due_s is None else min(sent, round(one.due_s * NS))
    late = round((one.late_s or 0.0) * NS)
    if one.error is not None or one.cut:
        how: FinishReason | None = None if one.cut else "error"
        return Generation(name, due, sent, late, finished=how, error=one.error)
    times, sizes = shared_out(one.chunks_s, one.tokens)
    return Generation(
        name,
        due,
        sent,
        late,
        commit_ns=[round(at * NS) for at in times],
        commit_tokens=sizes,
        token_ids=[UNKNOWN_TOKEN] * one.tokens,
        finished="stop",
        telemetry={} if one.cached_tokens is None else {CACHED_TOKENS: float(one.cached_tokens)},
    )


def shared_out(chunks_s: Sequence[float], tokens: int) -> tuple[list[float], list[int]]:
    """Which chunks had how many of the tokens: one each, and what is left evenly among those behind
    the first, the later ones first. Where there are more chunks than tokens (some had none), the
    first and the last keep theirs, and others between them are left out evenly."""
    count = len(chunks_s)
    if tokens < count:
        places = [round(i * (count - 1) / max(tokens - 1, 1)) for i in range(tokens)]
        return [chunks_s[place] for place in places], [1] * tokens
    if count == 1:
        return list(chunks_s), [tokens]
    each, more = divmod(tokens - count, count - 1)
    later = [1 + each + (place >= count - 1 - more) for place in range(count - 1)]
    return list(chunks_s), [1, *later]


def _verdict(found: ForeignLoad, *, cold: bool) -> Validity:
    count = len(found.requests)
    failed = sum(one.error is not None for one in found.requests)
    reasons = [f"failures: {failed} of {count} requests failed"] if failed else []
    if cut := sum(one.cut for one in found.requests):
        reasons.append(
            f"failures: {cut} of {count} requests did not finish: {found.tool} cut them off when "
            "its time was over"
        )
    lags = [one.late_s for one in found.requests if one.late_s is not None]
    if lags and (lag := float(np.percentile(lags, 99))) > MAX_LATE_S:
        reasons.append(
            f"client-late: {found.tool} itself sent up to {lag * 1e3:.1f} ms late "
            f"(p99; limit {MAX_LATE_S * 1e3:g} ms)"
        )
    cached = [one.cached_tokens for one in found.requests if one.chunks_s]
    if warm := sum(tokens or 0 for tokens in cached):
        reasons.append(f"cache-not-cold: {warm} prompt tokens came from the server's cache")
    elif not cold and None in cached and "cache-not-cold" not in map(slug, found.doubts):
        reasons.append(
            "cache-unknown: nobody can say whether prompts came from the server's cache; --cold "
            "says that none did"
        )
    told = set(map(slug, reasons))
    reasons += [reason for reason in found.doubts if slug(reason) not in told]
    valid = not reasons and count >= SAMPLES
    remarks = [
        "noise-not-checked: nobody looked at the server's machine",
        f"{IMPORTED}: {found.definitions}",
    ]
    return Validity(valid, (*reasons, *remarks))


def experiment_of(name: str, records: Sequence[TrialRecord], reference: str) -> dict[str, Any]:
    """What stands in the place of the experiment of a run that we did not make, as a run stores it;
    the others are compared with the loads that are called `reference`. It has no `repeats`: nobody
    asked for so many of each cell, so that none is missing."""
    trials = [record.trial for record in records]
    trials.sort(key=lambda trial: trial.options["run"] != reference)
    variants = dict.fromkeys((trial.backend, str(trial.options["run"])) for trial in trials)
    loads = dict.fromkeys(canonical_json(to_json(trial.load)) for trial in trials)
    models = [to_json(model) for model in dict.fromkeys(trial.model for trial in trials)]
    return {
        "name": name,
        "model": models if len(models) > 1 else models[0],
        "reference": trials[0].backend,
        "backends": [
            {"name": tool, "options": {"run": run}, "label": run} for tool, run in variants
        ],
        "workloads": [
            {"workload": to_json(workload)}
            for workload in {t.workload.checksum: t.workload for t in trials}.values()
        ],
        "load": [json.loads(load) for load in loads],
        "requests": max(trial.requests for trial in trials),
        "slo": to_json(trials[0].slo),
    }
