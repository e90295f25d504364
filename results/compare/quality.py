"""Task quality of one trial, and how near its answers are to the full model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.core.names import QUALITY
from harness.core.nouns import Slo
from harness.core.rouge import rouge_l
from results.compare.agreement import Agreement
from results.metrics import latency
from results.metrics.arrays import Flags, Floats, RequestArrays

if TYPE_CHECKING:
    from results.run import Run

RIGHT = ("pass_at_1", "exact_match")
"""What makes an answer right: the workload's official score, not a lenient one beside it."""


def without_quality(run: Run) -> Run:
    """The run as if prompts that were asked for their answers' sake alone were not stored."""
    more = quality_keys(run)
    return run.without(more) if more else run


def only_quality(run: Run) -> Run:
    """The run as if nothing else was stored."""
    return run.without({one.record.key for one in run.stored} - quality_keys(run))


def quality_keys(run: Run) -> frozenset[str]:
    """Keys of the trials whose prompts were asked for their answers' sake alone."""
    return frozenset(s.record.key for s in run.stored if s.record.trial.load.kind == QUALITY)


def mean_score(requests: RequestArrays, name: str) -> float | None:
    """Mean over the requests that have this score (failed requests have none)."""
    values = requests.scores.get(name)
    return _mean(values) if values is not None else None


def rouge_l_to_full(this: RequestArrays, reference: RequestArrays, agreement: Agreement) -> Floats:
    """(P,) ROUGE-L F1 of each answer against the reference's for the same request, NaN where a
    text is missing. Identical answers score 1 without being compared word by word."""
    both = _has_text(this)[agreement.rows] & _has_text(reference)[agreement.other_rows]
    values = np.where(both, 1.0, np.nan)
    places = np.flatnonzero(both & ~agreement.equal())
    if len(places):
        found, expected = this.texts.to_pylist(), reference.texts.to_pylist()
        values[places] = [
            rouge_l(expected[agreement.other_rows[p]], found[agreement.rows[p]]) for p in places
        ]
    return values


def is_right(requests: RequestArrays, agreement: Agreement | None) -> Flags | None:
    """(R,) requests whose answer scores 1 (pass@1, exact match) or equals the reference's.

    None when nothing says what is right of a completed request: it has no such score, and no
    reference, or one whose token ids are not known and whose length is the same.
    """
    right = np.zeros(len(requests), bool)
    judged = ~requests.completed
    for name in RIGHT:
        values = requests.scores.get(name)
        if values is not None:
            right |= values >= 1.0
            judged |= ~np.isnan(values)
    if agreement is not None:
        right[agreement.rows[agreement.equal()]] = True
        judged[agreement.rows] = True
        judged[agreement.counted_rows[agreement.length_differs]] = True
    return right if judged.all() else None


def good_and_right_per_s(requests: RequestArrays, slo: Slo, right: Flags | None) -> float | None:
    """Requests that meet the objective *and* are right (`is_right`), per second of
    `latency.window_s`. None when nothing says what is right."""
    seconds = latency.window_s(requests)
    if right is None or seconds is None:
        return None
    return int((latency.meets_slo(requests, slo) & right).sum()) / seconds


def _has_text(requests: RequestArrays) -> Flags:
    if requests.has_texts:
        return np.ones(len(requests), bool)
    return np.array([text is not None for text in requests.texts.to_pylist()], bool)


def _mean(values: Floats) -> float | None:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else None
