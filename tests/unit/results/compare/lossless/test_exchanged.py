"""What prompts that a reference answered again tell, and those that it did not tell nothing."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from results.compare.lossless.exchanged import answered_again, p_apart, p_less_consistent


def cell(load: str, pairs: int, differing: dict[str, list[int]], prompts: int = 20) -> Any:
    asked = {f"r{n}": pairs for n in range(prompts)} if pairs else {}
    return {"group": load, "checksum": "c", "evidence": {"differing": differing, "asked": asked}}


def others(count: int, pairs: int) -> dict[str, list[int]]:
    """So many prompts of which no answer is the reference's."""
    return {f"r{n}": [0, pairs] for n in range(count)}


def test_loads_under_which_the_reference_answered_once_tell_nothing() -> None:
    own = [cell("c=1", 1, {}), cell("c=8", 0, {})]
    again = answered_again([cell("c=1", 2, {}), cell("c=8", 2, others(9, 2))], own)
    assert (again, p_less_consistent(again), p_apart(again)) == ([], 1.0, 1.0)
    (one,) = answered_again([cell("c=1", 2, others(1, 2)), cell("c=8", 2, others(1, 2))], own)
    assert (one.pairs, one.own_pairs) == (2, 1)
    assert one.chance == pytest.approx(1 / 3)


def test_prompts_that_the_reference_failed_to_answer_again_tell_nothing() -> None:
    own = cell("c=1", 1, {}, prompts=4)
    again = answered_again([cell("c=1", 2, others(9, 2))], [own])
    assert len(again) == 4
    assert p_less_consistent(again) == 1 / 16
    assert p_apart(again) == pytest.approx(1 / 81)


def test_a_prompt_under_several_loads_is_one() -> None:
    cells = [cell(load, 2, others(2, 2)) for load in ("c=1", "c=8")]
    again = answered_again(cells, [cell(load, 1, {}) for load in ("c=1", "c=8")])
    assert len(again) == 2
    assert [one.chance for one in again] == pytest.approx([1 / 9, 1 / 9])
    assert p_less_consistent(again) == 1 / 4


@pytest.mark.parametrize(("own", "answers"), [(2, 1), (2, 2), (2, 5), (3, 2), (3, 3), (4, 4)])
def test_the_chance_is_no_less_than_what_all_ways_to_part_the_answers_give(
    own: int, answers: int
) -> None:
    """Written out, for the others all the same and for each another one."""
    pairs = own * (own - 1) // 2
    told = cell("c=1", answers, others(1, answers), prompts=1)
    (one,) = answered_again([told], [cell("c=1", pairs, {}, prompts=1)])
    worst = 0.0
    for texts in ([0] * own + [1] * answers, [0] * own + list(range(1, answers + 1))):
        apart = 0
        for ours in itertools.combinations(range(own + answers), own):
            kept = {texts[place] for place in ours}
            beside = {t for place, t in enumerate(texts) if place not in ours}
            apart += len(kept) == 1 and not kept & beside
        worst = max(worst, apart / math.comb(own + answers, own))
    assert one.chance >= worst - 1e-12
    assert one.chance == pytest.approx(worst)


def test_one_prompt_is_never_enough() -> None:
    own, told = cell("c=1", 45, {}), cell("c=1", 10, others(1, 10))
    assert p_apart(answered_again([told], [own])) == pytest.approx(1 / 9)
