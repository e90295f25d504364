"""A run of variants that draft, whose counts and times are known by hand.

An answer of ten tokens: the prompt's, then four verifications of three drafts each, of which 3, 1,
0 and 2 stand; the last of these ends the answer, so that the third draft there is not judged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.names import DRAFT_US
from harness.core.nouns import Load, Trial, TrialRecord, Workload
from reports.cells import Cell, Overview, overview
from reports.words.drafts import Drafting, drafting
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.stored_runs import run_of

COUNTS: dict[str, float] = {
    "steps": 4,
    "step_tokens": 9,
    "drafted": 12,
    "accepted": 6,
    "judged_at_1": 4,
    "accepted_at_1": 3,
    "judged_at_2": 3,
    "accepted_at_2": 2,
    "judged_at_3": 1,
    "accepted_at_3": 1,
}
"""Of a request, by hand."""
EARLY = {"early_predictions": 12.0, "exits_layer_2": 12.0, "accepted_layer_2": 6.0}
"""Beside them where drafts are early predictions."""
REQUESTS, REPEATS = 8, 2
PLAIN_MS = {"autoregressive": 10.0, "vllm": 40.0}
NATIVE: dict[str, Any] = {"kernels": "native"}


class MadeUpDrafts(NamedTuple):
    """A variant that drafts."""

    name: str
    options: Mapping[str, Any]
    step_ms: float
    draft_ms: float | None
    """Of a step, in milliseconds; None where they are not told."""


MODEL = MadeUpDrafts("speculative", {**NATIVE, "method": "draft_model"}, 20.0, 8.0)
SKIP = MadeUpDrafts("speculative", {**NATIVE, "method": "layerskip"}, 15.0, None)
VLLM = MadeUpDrafts("vllm-speculative", {"method": "draft_model"}, 100.0, 25.0)


def plain(name: str, workload: str, repeat: int) -> TrialRecord:
    """Plain decoding: nine steps of one token."""
    ends = [10 + PLAIN_MS[name] * place for place in range(10)]
    counts = {"steps": 9.0, "step_tokens": 9.0, "drafted": 0.0, "accepted": 0.0}
    found = [generation(f"r{i}", ends, telemetry=counts) for i in range(REQUESTS)]
    options = NATIVE if name == "autoregressive" else {}
    return record(_of(name, options, workload, repeat), found)


def speculative(
    workload: str, repeat: int, made: MadeUpDrafts, counts: Mapping[str, float] = COUNTS
) -> TrialRecord:
    """Four verifications."""
    ends = [10 + made.step_ms * place for place in range(5)]
    told = {} if made.draft_ms is None else {DRAFT_US: 4 * made.draft_ms * 1000}
    tokens = [1, 4, 2, 1, 2]
    found = [
        generation(f"r{i}", ends, tokens, telemetry={**counts, **told}) for i in range(REQUESTS)
    ]
    return record(_of(made.name, made.options, workload, repeat), found)


def _of(name: str, options: Mapping[str, Any], workload: str, repeat: int) -> Trial:
    data = Workload(workload, checksum=f"sum-{workload}")
    load = Load("closed", concurrency=1)
    return trial(name, options=dict(options), workload=data, load=load, repeat=repeat)


def records() -> Iterator[TrialRecord]:
    """Both engines on gsm8k; on xsum nothing of our own decodes plainly."""
    for repeat in range(REPEATS):
        for workload in ("gsm8k", "xsum"):
            yield plain("vllm", workload, repeat)
            for made in (MODEL, SKIP, VLLM):
                counts = COUNTS | EARLY if made is SKIP else COUNTS
                yield speculative(workload, repeat, made, counts)
        yield plain("autoregressive", "gsm8k", repeat)


def written(folder: Path, found: Iterable[TrialRecord], reference: str = "vllm") -> Overview:
    """The overview of these trials, stored in the folder."""
    choices = [
        ("vllm", {}),
        ("autoregressive", NATIVE),
        *(made[:2] for made in (MODEL, SKIP, VLLM)),
    ]
    listed = [{"name": name, "options": options} for name, options in choices]
    return overview(run_of(folder, *found, backends=listed, reference=reference))


def one(seen: Overview, method: str = "draft_model", backend: str = "speculative") -> Drafting:
    """That variant on gsm8k."""
    (found,) = [
        d
        for d in drafting(seen)
        if (d.cell.variant.backend, d.cell.variant.options["method"]) == (backend, method)
        and d.cell.workload == "gsm8k"
    ]
    return found


def changed(cell: Cell, **metrics: Any) -> Cell:
    """The cell with other numbers."""
    return dataclasses.replace(cell, metrics={**cell.metrics, **metrics})
