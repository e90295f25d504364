"""Stored runs of a few made-up trials, and their rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

import results
from harness.core.nouns import Generation, TrialRecord
from tests.support.results.make_trials import generation, trial

EXPERIMENT = {
    "name": "test",
    "reference": "vllm",
    "backends": [
        {"name": name, "options": options}
        for name, options in [
            ("vllm", {"block": 32}),
            ("vllm", {"block": 16}),
            ("fast", {}),
            ("autoregressive", {}),
        ]
    ],
}


def answer(step_ms: float, ids: Sequence[int], request: str = "r0") -> Generation:
    """First token after 10 ms, then one every `step_ms`."""
    return generation(request, [10 + step_ms * i for i in range(len(ids))], ids=ids)


def run_of(folder: Path, *records: TrialRecord, **experiment: Any) -> results.Run:
    store = results.Store(folder)
    store.write_experiment(yaml.safe_dump({**EXPERIMENT, **experiment}))
    for one in records:
        store.write(one)
    return results.load(folder)


def of(rows: list[dict[str, Any]], backend: str, repeat: int = 0, **more: Any) -> dict[str, Any]:
    wanted = {"backend": backend, "repeat": repeat, **more}
    (found,) = [row for row in rows if all(row.get(k, v) == v for k, v in wanted.items())]
    return found


REFERENCE = trial("vllm", options={"block": 32})
