"""Scores by prompt: asking one again is no evidence on others."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest

from results.compare.judged import (
    Mean,
    MeanScores,
    PairedScores,
    _judgement,
    add_scores,
    judge,
    paired,
    would_settle,
)
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


@pytest.mark.parametrize("asked", [4, 16, 30, 81, 148])
def test_equal_answers_settle_it_at_the_same_number_however_many_were_asked(asked: int) -> None:
    """0.98^149 < 5%: of a method that loses one prompt in fifty, 81 show none in 19%."""
    assert judge([0.0] * asked, 0.02) == ("too few", 149, True)
    assert judge([0.0] * 149, 0.02) == ("as good", 0, False)


@pytest.mark.parametrize("margin", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("gained", [0.0, 0.002, 0.01, 0.03, 0.1])
def test_a_loss_of_the_margin_is_seldom_as_good(margin: float, gained: float) -> None:
    """Exactly, over all numbers of losses and gains. At whole numbers no test is at 5% throughout:
    the score test's worst case here is 5.9%. By a normal approximation alone it was 20%."""
    lost = gained + margin
    for prompts in (24, 31, 81, 100, 149, 163, 200, 256):
        said = 0.0
        for losses in range(round(prompts * lost + 6 * math.sqrt(prompts * lost)) + 2):
            rest = math.comb(prompts, losses) * lost**losses
            for gains in range(round(prompts * gained + 6 * math.sqrt(prompts * gained)) + 1):
                if losses + gains > prompts or not _as_good(prompts, losses, gains, margin):
                    continue
                same = prompts - losses - gains
                ways = rest * math.comb(prompts - losses, gains)
                said += ways * gained**gains * (1 - lost - gained) ** same
        assert said <= 0.06, prompts


def _as_good(prompts: int, losses: int, gains: int, margin: float) -> bool:
    found = _judgement(prompts, float(gains - losses), float(gains + losses), margin)
    return found == "as good"


@pytest.mark.parametrize(("prompts", "share"), [(64, 0.1), (200, 0.02), (200, 0.1)])
def test_of_equal_quality_the_advised_number_settles_four_of_five(
    prompts: int, share: float
) -> None:
    """From the seen prompts on. What they came to by chance was told of as what comes to stay: a
    number with which 22% to 71% were settled."""
    draw, settled, advised = random.Random(3), 0, 0
    while advised < 300:
        seen = _drawn(draw, prompts, share)
        found = judge(seen)
        if found.judgement != "too few" or found.is_least:
            continue
        advised += 1
        every = seen + _drawn(draw, found.needed - prompts, share)
        settled += judge(every).judgement != "too few"
    assert settled >= 0.75 * advised


def _drawn(draw: random.Random, prompts: int, share: float) -> list[float]:
    """Of which half of `share` each are lost and gained."""
    return [
        0.0 if (found := draw.random()) > share else 1.0 if 2 * found > share else -1.0
        for _ in range(prompts)
    ]


def test_of_hardly_any_prompt_that_differs_no_number_is_advised() -> None:
    """What is told is certain: one of 24 that is lost takes 236, if no other one is."""
    assert judge([-1.0] + [0.0] * 23) == ("too few", 236, True)
    assert judge([-1.0] + [0.0] * 235).judgement == "as good"
    assert judge([-1.0] + [0.0] * 234).judgement == "too few"
    assert not judge([-1.0] * 5 + [1.0] * 5 + [0.0] * 54).is_least


@pytest.mark.parametrize(("spread", "most"), [(0.02, 260), (0.05, 320)])
def test_scores_that_differ_little_take_few_prompts(spread: float, most: int) -> None:
    """ROUGE-L of nearly equal texts: a pseudo-prompt that is lost whole would ask for 750."""
    chance = random.Random(0)
    for _ in range(20):
        found = judge([chance.gauss(0, spread) for _ in range(20)])
        assert (found.judgement, found.is_least) == ("too few", False)
        assert 150 <= found.needed <= most


def test_what_lies_on_the_margin_and_a_margin_of_nothing_are_told_of() -> None:
    judgement, needed, is_least = judge([-0.02] * 10, 0.02)
    assert (judgement, 10 < needed < 10**4, is_least) == ("too few", True, False)
    assert judge([0.0] * 10, 0.0) == ("too few", 10_000_000, True)
    equal = PairedScores(0.5, 0.5, 10, *judge([0.0] * 10, 0.0))
    assert would_settle([equal]) == "no number that could be asked would settle it"
    assert judge([-1.0, 0.0, 0.0], 1.0).judgement == "as good"


@pytest.mark.parametrize(("right", "judgement"), [(0, 0), (1, 0), (2, 0), (3, 1)])
def test_where_the_reference_scores_nothing_wrong_answers_are_not_as_good(
    right: int, judgement: int
) -> None:
    theirs = {f"r{i}": Mean(float(i < right), 1) for i in range(100)}
    found = paired(theirs, {name: Mean(0.0, 1) for name in theirs}, 0.02)
    assert found is not None
    assert found.judgement == ("nothing to lose", "too few")[judgement]


def test_pairs_are_told_of_with_the_most_that_any_of_them_takes() -> None:
    few = PairedScores(0.8, 0.8, 24, "too few", 149, is_least=True)
    more = PairedScores(0.8, 0.8, 200, "too few", 1526)
    assert would_settle([more]) == "about 1,526 would settle it"
    assert would_settle([few, more]) == "at least 1,526 are needed"
