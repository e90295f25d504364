"""The test on distributions: its level where there is no difference, its power where there is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from results.compare.lossless.sampled import (
    DEEPEST,
    FEWEST,
    SHUFFLES,
    SampledTest,
    draws_of,
    log_chi_square_tail,
    same_distribution,
)
from results.metrics.arrays import from_record
from tests.support.results.make_trials import generation, record, trial

PLAIN = (0.5, 0.3, 0.15, 0.05)
PROMPTS = 4


def drawn(
    rng: np.random.Generator, count: int, shares: Sequence[float], length: int = 3
) -> list[tuple[int, ...]]:
    """Answers whose tokens are drawn one after the other, each from the same shares."""
    return [tuple(rng.choice(len(shares), length, p=shares).tolist()) for _ in range(count)]


def compared(seed: int, shares: Sequence[float], count: int = 40) -> SampledTest:
    rng = np.random.default_rng(seed)
    prompts = [(drawn(rng, count, PLAIN), drawn(rng, count, shares)) for _ in range(PROMPTS)]
    found = same_distribution(prompts)
    assert found is not None
    return found


def test_equal_distributions_pass_at_the_level() -> None:
    found = [compared(seed, PLAIN, 20) for seed in range(40)]
    assert sum(one.p_value < 0.05 for one in found) <= 6, "of 40, at 5%"
    assert np.mean([one.distance for one in found]) < 0.06


def test_another_distribution_is_found_with_its_distance() -> None:
    found = [compared(seed, (0.3, 0.5, 0.15, 0.05), 60) for seed in range(3)]
    assert all(one.p_value < 0.01 for one in found)
    assert found[0].prompts == PROMPTS
    assert found[0].draws == PROMPTS * 120
    # 0.2 of the tokens would have to change
    assert np.mean([one.distance for one in found]) == pytest.approx(0.2, abs=0.05)


def test_a_change_deep_in_the_text_is_found() -> None:
    rng = np.random.default_rng(0)
    ours = [(1, 2, 3, int(rng.integers(2))) for _ in range(60)]
    theirs = [(1, 2, 3, int(rng.random() < 0.15)) for _ in range(60)]
    found = same_distribution([(ours, theirs)])
    assert found is not None
    assert found.beginnings == 1, "only the last token is in doubt"
    assert found.p_value == pytest.approx(1 / (SHUFFLES + 1))


def test_draws_that_are_equal_one_by_one_are_no_evidence() -> None:
    answers = drawn(np.random.default_rng(0), 30, PLAIN)
    found = same_distribution([(answers, answers)])
    assert found is not None
    assert found.p_value == 1.0
    assert found.distance == 0.0


def test_too_few_draws_say_nothing() -> None:
    few = drawn(np.random.default_rng(0), FEWEST - 1, PLAIN)
    assert same_distribution([(few, few * 9)]) is None
    assert same_distribution([]) is None


def test_where_no_beginning_can_be_compared_it_is_said_whether_all_answers_are_the_same() -> None:
    same = [(1, 2)] * 30
    assert same_distribution([(same, same)]) == SampledTest(1.0, 0.0, 1, 0, 60, alike=True)
    assert same_distribution([(same, same), (same, [(1,)] * 30)]) == SampledTest(
        1.0, 0.0, 2, 0, 120, alike=False
    )
    seldom = ([(3,)] * 4, [(4,)] * 4)
    assert same_distribution([(same, same), seldom]) == SampledTest(1.0, 0.0, 1, 0, 60, alike=False)
    scattered = [(n,) for n in range(30)]
    late = [(*range(DEEPEST), n % 2) for n in range(30)]
    for differing in (scattered, late):
        found = same_distribution([(differing, differing)])
        assert found is not None
        assert (found.beginnings, found.alike) == (0, False)


def test_a_few_answers_tell_a_side_that_never_gives_the_other_s() -> None:
    found = same_distribution([([(1,)] * FEWEST, [(2,)] * FEWEST)])
    assert found is not None
    assert found.p_value == pytest.approx(1 / 126, abs=0.006)


def test_draws_are_those_of_one_prompt_asked_again() -> None:
    generations = [
        generation("a", [1, 2], ids=[1, 2]),
        generation("b", [1], ids=[3]),
        generation("a#2", [1, 2], ids=[1, 4]),
        generation("a#3", [1], ids=[1], finished="error"),
    ]
    requests = from_record(record(trial(), generations))
    assert draws_of(requests) == {"a": [(1, 2), (1, 4)], "b": [(3,)]}


@pytest.mark.parametrize(
    ("value", "degrees", "tail"),
    [
        # tables of the chi-square distribution: 5% and 0.1% points
        (3.841459, 1, 0.05),
        (5.991465, 2, 0.05),
        (7.814728, 3, 0.05),
        (11.070498, 5, 0.05),
        (18.307038, 10, 0.05),
        (29.588298, 10, 0.001),
        (0.0, 4, 1.0),
    ],
)
def test_the_tail_is_that_of_the_tables(value: float, degrees: int, tail: float) -> None:
    (found,) = log_chi_square_tail(np.array([value]), degrees)
    assert math.exp(found) == pytest.approx(tail, rel=1e-5)
