"""Drafts by rates against closed forms, and one line for what cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.core.errors import UserError
from results.traces.rated import drafts_of
from results.traces.rates import parse_rates

TOKENS = 401


def played(given: dict[str, Any], drafts: int, requests: int = 200) -> list[list[int]]:
    """How many of so many drafts stand, verification by verification, of each request."""
    rates, found = parse_rates(given, "x"), []
    for number in range(requests):
        row = drafts_of(rates, rates.row_for(f"r{number}", TOKENS, ignore_eos=True))
        position, standing = 0, []
        while position < TOKENS - 1:
            made = row.chain(position, drafts)[1]
            standing.append(row.standing(position, made))
            position += standing[-1] + 1
        found.append(standing)
    return found


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("drafts", [1, 4])
def test_a_verification_brings_what_the_closed_form_says(acceptance: float, drafts: int) -> None:
    """(1 - a^(k + 1)) / (1 - a) tokens (Leviathan et al., 2023, equation 1)."""
    found = np.mean([1 + s for r in played({"acceptance": acceptance}, drafts) for s in r])
    expected = sum(acceptance**place for place in range(drafts + 1))
    assert found == pytest.approx(expected, rel=0.02)


def test_a_list_says_how_many_stand_at_each_place() -> None:
    """Behind its end a draft stands as often as the last one does, where those before it do."""
    standing = np.concatenate(played({"acceptance": [0.72, 0.5, 0.34]}, 4))
    shares = [float((standing > place).mean()) for place in range(4)]
    assert shares == pytest.approx([0.72, 0.5, 0.34, 0.34 * 0.34 / 0.5], abs=0.01)


@pytest.mark.parametrize(("length", "drafts"), [(1, 3), (2.6, 3), (3.4, 5), (6, 5)])
def test_a_mean_length_comes_out(length: float, drafts: int) -> None:
    given = {"acceptance": {"length": length, "drafts": drafts}}
    found = np.mean([1 + s for request in played(given, drafts) for s in request])
    assert found == pytest.approx(length, rel=0.02)


def test_a_search_finds_something_as_often_as_is_said() -> None:
    given = {"acceptance": 1.0, "found": 0.3}
    rates = parse_rates(given, "x")
    row = drafts_of(rates, rates.row_for("r", 10_000, ignore_eos=True))
    chains = [row.chain(position, 5) for position in range(9_999)]
    assert set(chains) == {(5, 5), (1, 0)}, "asked once where nothing is found"
    assert np.mean([made > 0 for _, made in chains]) == pytest.approx(0.3, abs=0.02)


def test_a_request_has_the_same_fate_wherever_its_chains_begin() -> None:
    rates = parse_rates({"acceptance": 0.6}, "x")
    row, again, other = (
        drafts_of(rates, rates.row_for(name, 64, ignore_eos=True)) for name in ("a", "a", "b")
    )
    stands = [row.standing(place, 1) for place in range(63)]
    assert [again.standing(place, 1) for place in range(63)] == stands
    assert [other.standing(place, 1) for place in range(63)] != stands
    for place in range(40):
        until = stands[place:].index(0) if 0 in stands[place:] else 99
        assert row.standing(place, 8) == min(until, 8)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"acceptance": []}, "x.acceptance: expected 1 to 64 shares, got 0"),
        ({"acceptance": [0.5, 0.6]}, "place 2: is 0.6, and the place before 0.5; expected no more"),
        ({"acceptance": [0.5, "a"]}, "x.acceptance: place 2: expected a number from 0 to 1"),
        ({"acceptance": 1.2}, "x.acceptance: expected a number from 0 to 1, got 1.2"),
        ({"acceptance": {"length": 2}}, "x.acceptance: the key 'drafts' is missing"),
        ({"acceptance": {"length": 2, "draft": 3}}, "x.acceptance.draft: unknown key; did you"),
        ({"acceptance": {"length": 5, "drafts": 3}}, "1 to 4 with 3 drafts, got 5"),
        ({"acceptance": {"length": 0.5, "drafts": 3}}, "1 to 4 with 3 drafts, got 0.5"),
        ({"acceptance": {"length": 2, "drafts": 0}}, "x.acceptance.drafts: expected a whole"),
        ({"acceptance": 0.5, "found": 2}, "x.found: expected a number from 0 to 1, got 2"),
        ({"acceptance": {"length": "2", "drafts": 3}}, "1 to 4 with 3 drafts, got '2'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_rates(given, "x")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
