"""A trial as `vllm bench serve --save-result --save-detailed` would have stored it (vLLM 0.32,
`vllm/benchmarks/serve.py`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from harness.core.nouns import TrialRecord, canonical_json, to_json
from results.imports.vllm_bench import DATE
from results.metrics.arrays import RequestArrays
from results.metrics.latency import NS
from results.metrics.other_tools import as_vllm_bench
from results.prompts import asked_prompts


def as_file(
    record: TrialRecord,
    requests: RequestArrays,
    prompts: Mapping[str, int],
    row: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of the file, by the tool's definitions (`as_vllm_bench`). What is undefined or
    not known is None, and what the tool has no words for stands under `decodebench`.

    Args:
        record: with its generations and texts.
        requests: the same trial's, as metrics read them.
        prompts: tokens of each prompt by its row's id, as far as known.
        row: the trial's, of `results.rows.summaries`.
    """
    trial, backend = record.trial, record.backend
    load, generations = trial.load, record.generations
    _, tokens = asked_prompts([g.request_id for g in generations], prompts)
    found = {
        "date": datetime.fromisoformat(record.started_at).strftime(DATE)
        if record.started_at
        else "",
        "endpoint_type": trial.backend,
        "backend": trial.backend,
        "label": canonical_json(to_json(backend.options)) if backend else None,
        "provenance": backend.provenance if backend else None,
        "model_id": trial.model.name,
        "num_prompts": len(generations),
        "request_rate": load.rate if load.rate is not None else "inf",
        "burstiness": "inf" if load.kind == "constant" else load.burstiness or 1.0,
        "max_concurrency": load.concurrency,
        "request_goodput": None,
        **{
            name: value if math.isfinite(value) else None
            for name, value in as_vllm_bench(requests, trial.slo, tokens).items()
        },
        "input_lens": None if np.isnan(tokens).any() else tokens.astype(int).tolist(),
        **_details(record),
        "decodebench": {
            "key": record.key,
            "workload": trial.workload.name,
            "load": load.label(),
            "repeat": trial.repeat,
            "label": row["label"],
            "valid": row["valid"],
            "validity": list(row["invalid_reasons"]),
        },
    }
    if load.is_open:
        # of a closed loop it would be the wait for a place, which nobody stamps
        found["queue_times"] = [(g.submitted_ns - g.scheduled_ns) / NS for g in generations]
    return found


def _details(record: TrialRecord) -> dict[str, list[Any]]:
    """What `--save-detailed` adds of the answers, in the order of the requests."""
    generations = record.generations
    done = [g for g in generations if g.commit_ns and g.finished in ("stop", "length")]
    answered = {g.request_id for g in done}
    return {
        "output_lens": [len(g.token_ids) if g.request_id in answered else 0 for g in generations],
        "ttfts": [
            (g.commit_ns[0] - g.submitted_ns) / NS if g.request_id in answered else 0.0
            for g in generations
        ],
        "itls": [
            [(b - a) / NS for a, b in itertools.pairwise(g.commit_ns)]
            if g.request_id in answered
            else []
            for g in generations
        ],
        "start_times": [g.submitted_ns / NS for g in generations],
        "generated_texts": [record.texts.get(g.request_id, "") for g in generations],
        "errors": [
            "" if g.request_id in answered else g.error or "did not end" for g in generations
        ],
    }
