"""E-divisive against its definition, and its error rates where the truth is known."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from results.history.change_points import FEWEST, change_points, fewest_points, split_gains


def by_definition(values: np.ndarray, split: int) -> float:
    """Matteson and James 2014, equations 5 to 7, exponent 1, pair by pair."""
    left, right = values[:split], values[split:]
    m, n = len(left), len(right)
    between = 2 / (m * n) * sum(abs(x - y) for x in left for y in right)
    within = [
        2 / (len(part) * (len(part) - 1)) * sum(abs(a - b) for a, b in combinations(part, 2))
        for part in (left, right)
    ]
    return float(m * n / (m + n) * (between - sum(within)))


def test_gains_are_those_of_the_paper() -> None:
    values = np.random.default_rng(0).normal(size=11)
    gains = split_gains(np.abs(values[:, None] - values)[None])[0]
    splits = range(FEWEST, len(values) - FEWEST + 1)
    assert gains == pytest.approx([by_definition(values, split) for split in splits])


def test_steps_are_where_they_are_and_what_they_are() -> None:
    rng = np.random.default_rng(1)
    values = 10 + rng.normal(scale=0.1, size=60)
    values[20:] += 1
    values[45:] -= 2
    first, second = change_points(values, 0.01)
    assert (first.place, second.place) == (20, 45)
    assert first.before == pytest.approx(values[:20].mean())
    assert first.after == second.before == pytest.approx(values[20:45].mean())
    assert second.after == pytest.approx(values[45:].mean())
    assert first.p <= 0.01


def test_a_series_without_a_change_has_one_as_often_as_is_said() -> None:
    rng = np.random.default_rng(2)
    noise = [rng.normal(size=30), rng.exponential(size=30), rng.integers(0, 2, 30).astype(float)]
    for number in range(120):
        noise.append(rng.standard_t(3, size=12 + number % 20))
    found = sum(bool(change_points(values, 0.1)) for values in noise)
    # more than 21 of 123 at 10% each: one time in 100
    assert found <= 21


def test_a_step_of_five_percent_is_found_in_two_percent_of_noise() -> None:
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(40):
        values = 1 + 0.02 * rng.normal(size=30)
        values[15:] *= 1.05
        found += any(abs(one.place - 15) <= 2 for one in change_points(values, 0.01))
    assert found >= 35


def test_what_is_constant_or_short_has_none() -> None:
    assert change_points([], 0.05) == []
    assert change_points([1.0] * 20, 0.05) == []
    assert change_points([1.0, 1.0, 2.0, 2.0], 0.05) == []
    assert change_points([1.0, 2.0] * 10, 0.05) == []


@pytest.mark.parametrize("level", [0.05, 0.01, 0.001])
def test_the_fewest_points_are_enough_and_far_fewer_are_not(level: float) -> None:
    """A clean step."""
    n = fewest_points(level)
    for count in (n + 1, n, n - 3):
        values = np.repeat([0.0, 1.0], [count // 2, count - count // 2])
        values += 1e-3 * np.arange(count)
        assert bool(change_points(values, level)) == (count >= n)


def test_equal_series_have_equal_answers() -> None:
    values = np.random.default_rng(4).normal(size=25).cumsum()
    assert change_points(values, 0.02) == change_points(values.tolist(), 0.02)
    places = [one.place for one in change_points(values, 0.02)]
    assert places == [one.place for one in change_points(1000 * values + 5, 0.02)]


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        change_points([1.0, float("nan")], 0.05)
    with pytest.raises(ValueError, match="expected 0 to 1"):
        change_points([1.0], 1.0)
