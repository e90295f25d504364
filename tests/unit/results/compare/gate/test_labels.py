"""A gate on tokens a second, which labels do not have."""

from __future__ import annotations

import numpy as np
import pytest

from harness.core.errors import UserError
from results.compare.gate.comparison import compare_runs
from results.compare.gate.margins import GateRules, MarginRule
from results.compare.gate.reduced import ReducedRun
from tests.support.results.reduced_runs import a_run, cell, everywhere, joined

RULES = GateRules((MarginRule("output_tok_per_s", 0.05),), where="gate.yaml")
HINT = r" \(answers are labels: expected 'request_per_s'\)"
PLACE = "gsm8k, closed c=8, demo: labels"


def labels(where: str, **numbers: float) -> ReducedRun:
    """A cell whose answers are labels, with these numbers of each trial."""
    lengths = np.zeros(30, np.int64)
    return everywhere(a_run(where), cell=cell("labels"), lengths=lengths, numbers=numbers)


def texts(where: str) -> ReducedRun:
    lengths = np.full(30, 5)
    return everywhere(a_run(where), lengths=lengths, numbers={"output_tok_per_s": 100.0})


def test_a_baseline_of_before_names_the_rate_of_labels() -> None:
    """It says 0 tokens a second."""
    decision = compare_runs(labels("BASE", output_tok_per_s=0.0), labels("NEW"), RULES)
    assert decision.missing == [
        f"metric output_tok_per_s missing in NEW (answers are labels: expected 'request_per_s'): "
        f"{PLACE}"
    ]


def test_a_rule_on_tokens_of_labels_is_refused_with_the_rate_of_labels() -> None:
    words = f"no trial of BASE has the metric 'output_tok_per_s'{HINT}$"
    with pytest.raises(UserError, match=words):
        compare_runs(labels("BASE"), labels("NEW"), RULES)


def test_labels_beside_texts_do_not_leave_the_gate_unsaid() -> None:
    base, new = (joined(name, [texts(name), labels(name)]) for name in ("BASE", "NEW"))
    decision = compare_runs(base, new, RULES)
    assert [row.cell.backend for row in decision.rows] == ["fast"]
    assert decision.notes == [
        "no output_tok_per_s in BASE, not gated (answers are labels: expected 'request_per_s'): "
        f"{PLACE}"
    ]
