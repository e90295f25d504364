"""The search while decoding: sets of one size, and the best of them found."""

from __future__ import annotations

import math

import numpy as np
import pytest

from backends.engine.sublayers.search import SetSearch, expected_improvement
from backends.engine.sublayers.sets import Sublayers

TOKENS = 16


def play(search: SetSearch, steps: int, harmful: set[int]) -> list[Sublayers]:
    """Each sublayer of some that is left out costs three of 16 tokens."""
    tried = []
    for _ in range(steps):
        sets = [search.best, search.next(), search.next()]
        tried += sets[1:]
        right = {
            left_out: max(0, TOKENS - 3 * sum(left_out.flags(8)[x] for x in harmful))
            for left_out in sets
        }
        search.tried(right, TOKENS)
    return tried


@pytest.mark.parametrize(
    ("layers", "share", "size"),
    [(8, 0.5, 8), (8, 0.95, 12), (8, 0.05, 1), (2, 0.9, 3), (2, 0.1, 1), (3, 0.9, 2), (1, 0.5, 1)],
)
def test_sets_have_one_size_and_keep_the_ends(layers: int, share: float, size: int) -> None:
    search = SetSearch(layers, share, 0)
    for left_out in [search.best, *(search.next() for _ in range(30))]:
        assert len(left_out) == size
        if layers > 2:
            assert not {0, layers - 1} & (left_out.attention | left_out.mlp)


def test_the_best_set_is_found_and_forgotten() -> None:
    harmful = {2, 5, 9, 12}
    search = SetSearch(8, 0.5, seed=3)
    first = search.best
    tried = play(search, 40, harmful)
    assert not any(search.best.flags(8)[x] for x in harmful)
    assert search.matchness > 0.9
    search.reset()
    assert search.best == first
    assert search.matchness == 0.5
    assert play(search, 40, harmful) == tried, "the same again, whatever came before"
    assert play(SetSearch(8, 0.5, seed=4), 40, harmful) != tried


def test_luck_on_a_few_tokens_does_not_replace_what_is_known_well() -> None:
    search = SetSearch(8, 0.5, 0)
    best, lucky = search.best, search.next()
    for _ in range(5):
        search.tried({best: 16}, TOKENS)
    search.tried({best: 15, lucky: 16}, TOKENS)
    assert search.best == best
    for _ in range(5):
        search.tried({best: 10, lucky: 16}, TOKENS)
    assert search.best == lucky


def test_expected_improvement() -> None:
    known = np.array([[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]], float)
    rates, weights = np.array([0.2, 0.5, 0.9]), np.ones(3)
    pool = np.array([[0, 0, 0, 1], [1, 1, 1, 0], [1, 1, 1, 1]], float)
    gain = expected_improvement(known, rates, weights, pool)
    assert (gain >= 0).all()
    assert gain[1] > gain[0], "nearer to what was good"
    unsure = expected_improvement(known, rates, np.full(3, 0.05), pool)
    assert unsure[2] > gain[2], "of which little is known where few tokens were tried"
    one = expected_improvement(known[:1], rates[:1], weights[:1], pool[:1])
    # of one set, a sublayer away: as much noise as spread, and as likely better as worse
    explained = math.exp(-1 / 2) ** 2 / 2
    assert one[0] == pytest.approx(0.05 * math.sqrt((1 - explained) / (2 * math.pi)))
