"""Scores by prompt: asking one again is no evidence on others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from results.compare.judged import MeanScores, PairedScores, add_scores, judge, paired
from results.metrics.arrays import from_record
from tests.support.results.make_trials import generation, record, trial

SCORE = "exact_match"
AGAIN = 32


def scores(right: Mapping[str, int]) -> MeanScores:
    """Each prompt asked `AGAIN` times, of which so many are right."""
    found: MeanScores = {}
    own = {
        name if not turn else f"{name}#{turn + 1}": float(turn < count)
        for turn in range(AGAIN)
        for name, count in right.items()
    }
    generations = [generation(name, [0, 1]) for name in own]
    told = {name: {SCORE: value} for name, value in own.items()}
    add_scores(found, from_record(record(trial(), generations, scores=told)))
    return found


def judged(right: Mapping[str, int]) -> PairedScores:
    theirs = dict.fromkeys("abcd", AGAIN)
    found = paired(scores(theirs)[SCORE], scores({**theirs, **right})[SCORE], 0.02)
    assert found is not None
    return found


def test_four_prompts_asked_again_and_again_are_four() -> None:
    same = judged({})
    assert (same.prompts, same.judgement) == (4, "too few")
    worse = judged({"b": 0})
    assert (worse.prompts, worse.own, worse.judgement) == (4, 0.75, "too few")


def test_a_prompt_counts_with_the_mean_of_its_answers() -> None:
    found = scores({"a": 8, "b": AGAIN})[SCORE]
    assert {name: mean.value for name, mean in found.items()} == {"a": 0.25, "b": 1.0}
    assert judged({"a": 8}).own == pytest.approx(3.25 / 4)


@pytest.mark.parametrize("asked", [4, 16, 30, 80])
def test_equal_answers_settle_it_at_the_same_number_however_many_were_asked(asked: int) -> None:
    """1.645 / (n + 2) < 0.02, the two pseudo-pairs' weight at n prompts."""
    assert judge([0.0] * asked, 0.02) == ("too few", 81)
    assert judge([0.0] * 81, 0.02) == ("as good", 0)


def test_the_number_is_the_least_that_settles_it() -> None:
    differences = [-1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    judgement, needed = judge(differences)
    assert judgement == "too few"
    assert judge(differences * (needed // 8 + 1))[0] == "as good"
    assert judge(differences * (needed // 8 - 1))[0] == "too few"


def test_what_lies_on_the_margin_is_told_of_what_lies_beyond() -> None:
    judgement, needed = judge([-0.02] * 10, 0.02)
    assert (judgement, 10 < needed < 10**4) == ("too few", True)
    assert judge([0.0] * 10, 0.0)[0] == "too few"
