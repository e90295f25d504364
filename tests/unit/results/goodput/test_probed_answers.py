"""What answers about a found rate are worth: by prompt, however often probes ask one."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from harness.core.nouns import Slo
from results.compare.intervals.wilson import wilson_interval
from results.goodput.answers import ProbedAnswers, answers_about, is_right_enough
from results.goodput.search import FoundRate
from results.metrics.arrays import RequestArrays, from_record
from tests.support.results.make_trials import generation, record, trial

FOUND = FoundRate(10.0, 9.0, 11.0)
SCORE = "exact_match"


def probe(asked: Collection[int], right: Collection[int], again: int = 1) -> RequestArrays:
    """Prompts asked so often each; a request that is unanswered has no score."""
    names = {
        f"p{prompt}" + (f"#{turn + 1}" if turn else ""): float(prompt in right)
        for turn in range(again)
        for prompt in asked
    }
    answered = [generation(name, [0, 1]) for name in names]
    failed = generation("p99", [0], finished="error")
    scores = {name: {SCORE: value} for name, value in names.items()}
    return from_record(record(trial(), [*answered, failed], scores=scores))


def answers(*probes: tuple[float, RequestArrays]) -> ProbedAnswers:
    found = answers_about(probes, Slo(), FOUND)
    assert found is not None
    return found


def test_prompts_that_are_asked_again_narrow_nothing() -> None:
    """Twenty prompts, fourteen right: asked 50 times in two probes they are no 2,000 answers."""
    often = probe(range(20), range(14), again=50)
    found = answers((10.0, often), (11.0, often), (40.0, probe(range(20), ())))
    assert (found.score, found.scored, found.prompts) == (SCORE, 2000, 20)
    assert (found.mean, found.low, found.high) == pytest.approx((0.7, *wilson_interval(0.7, 20)))
    assert is_right_enough(found, 0.8), "0.8 is within what 20 prompts leave open"
    assert not is_right_enough(found, 0.9)


def test_the_score_of_most_prompts_tells() -> None:
    """One prompt of 40 has another scorer, and is wrong by it."""
    made = [generation(f"p{n}", [0, 1]) for n in range(40)]
    scores = {f"p{n}": {"matches_pattern": 1.0} for n in range(39)} | {"p39": {SCORE: 0.0}}
    found = answers((10.0, from_record(record(trial(), made, scores=scores))))
    assert (found.score, found.mean, found.prompts) == ("matches_pattern", 1.0, 39)


def test_each_prompt_counts_the_same() -> None:
    found = answers((10.0, probe((1,), (1,), again=3)), (11.0, probe((1, 2), ())))
    assert (found.mean, found.scored, found.prompts) == (0.375, 5, 2)
