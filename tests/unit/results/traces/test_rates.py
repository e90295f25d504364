"""Traces made from rates: their shares, their correlation, and one line for what cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.core.errors import UserError
from results.traces.rates import Rates, parse_rates

CHATTY: dict[str, Any] = {
    "exits": {0.5: 0.4, 0.25: 0.1},
    "acceptance": 0.9,
    "length": {"mean": 40, "min": 4, "max": 64},
}


def decisions(rates: Rates, count: int = 400) -> tuple[np.ndarray[Any, Any], list[bool]]:
    """Where each token but an answer's last leaves (2: nowhere), and whether it is right."""
    left, right = [], []
    for number in range(count):
        row = rates.row_for(f"r{number}", 64, ignore_eos=True)
        assert row.positions.tolist() == list(range(63))
        left.append(2 - (row.confidence[:-1] > 0.5).sum(1))
        right += row.agrees[:-1, 0].tolist()
        assert not row.confidence[-1].any(), "the last token never leaves early"
    return np.array(left), right


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_shares_hold_whatever_the_correlation(correlation: float) -> None:
    rates = parse_rates({**CHATTY, "correlation": correlation}, "x")
    assert rates.fractions == (0.25, 0.5)
    left, right = decisions(rates)
    shares = [float((left == exit_).mean()) for exit_ in range(3)]
    assert shares == pytest.approx([0.1, 0.4, 0.5], abs=0.03)
    assert float(np.mean(right)) == pytest.approx(0.9, abs=0.02)
    # a token repeats the one before with the correlation, or draws the same by chance
    same = float((left[:, 1:] == left[:, :-1]).mean())
    chance = 0.1**2 + 0.4**2 + 0.5**2
    assert same == pytest.approx(correlation + (1 - correlation) * chance, abs=0.03)


def test_a_request_has_its_own_row_always() -> None:
    rates = parse_rates(CHATTY, "x")
    rows = [rates.row_for(name, 64, ignore_eos=False) for name in ("a", "b", "a")]
    assert rows[0].confidence.tolist() == rows[2].confidence.tolist()
    assert rows[0].confidence.tolist() != rows[1].confidence.tolist()
    other = parse_rates({**CHATTY, "seed": 1}, "x").row_for("a", 64, ignore_eos=False)
    assert other.confidence.tolist() != rows[0].confidence.tolist()


def test_lengths_have_their_mean_and_bounds() -> None:
    rates = parse_rates(CHATTY, "x")
    rows = [rates.row_for(f"r{n}", 64, ignore_eos=False) for n in range(2000)]
    lengths = [row.answer_tokens for row in rows]
    assert 4 <= min(lengths) <= max(lengths) <= 64
    assert float(np.mean(lengths)) == pytest.approx(40, abs=1)
    assert len({*lengths}) > 40
    assert {row.finished for row in rows} <= {"stop", "length"}
    fixed = parse_rates({"length": 12}, "x")
    assert fixed.row_for("a", 64, ignore_eos=False).answer_tokens == 12
    assert fixed.row_for("a", 8, ignore_eos=False).answer_tokens == 8
    assert fixed.row_for("a", 64, ignore_eos=True).answer_tokens == 64
    assert parse_rates({}, "x").row_for("a", 33, ignore_eos=False).finished == "length"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"acceptence": 1}, "x.acceptence: unknown key; did you mean 'acceptance'?"),
        ({"acceptance": 1.2}, "x.acceptance: expected a number from 0 to 1, got 1.2"),
        ({"acceptance": "most"}, "x.acceptance: expected a number from 0 to 1, got 'most'"),
        ({"acceptance": True}, "x.acceptance: expected a number from 0 to 1, got True"),
        ({"correlation": -0.1}, "x.correlation: expected a number from 0 to 1, got -0.1"),
        ({"correlation": 1}, "x.correlation: expected a number from 0 to below 1, got 1"),
        ({"exits": [0.5]}, "x.exits: expected a mapping of depths to shares, got [0.5]"),
        ({"exits": {1.0: 0.5}}, "x.exits: 1.0: expected a depth between 0 and 1, as a share"),
        ({"exits": {"half": 0.5}}, "x.exits: 'half': expected a depth between 0 and 1"),
        ({"exits": {0.5: 1.5}}, "x.exits.0.5: expected a number from 0 to 1, got 1.5"),
        ({"exits": {0.5: 0.7, 0.6: 0.5}}, "x.exits: the shares add up to 1.2; expected at most 1"),
        ({"exits": {0.5: 0.1, "0.50": 0.1}}, "x.exits: the depth 0.5 stands twice"),
        ({"length": 0}, "x.length: expected a whole number of at least 1, or {mean, min, max}"),
        ({"length": {"mean": 3}}, "x.length: the key 'min' is missing"),
        ({"length": {"mean": 3, "min": 1, "max": 2}}, "x.length.mean: expected a number between"),
        (
            {"length": {"mean": 3, "min": 1, "most": 2}},
            "x.length.most: unknown key; expected",
        ),
        ({"length": {"mean": 3, "min": 0, "max": 9}}, "x.length.min: expected a whole number"),
        ({"name": 3}, "x.name: expected a text, got 3"),
        ({"seed": -1}, "x.seed: expected a whole number of at least 0, got -1"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_rates(given, "x")
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


def test_rows_that_stand_for_all_are_no_longer_than_they_need_be() -> None:
    rates = parse_rates({"exits": {0.5: 0.4}, "length": 20_000}, "rates.x")
    rows = rates.samples()
    assert {row.answer_tokens for row in rows} == {4096}
