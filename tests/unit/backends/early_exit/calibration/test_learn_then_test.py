"""Learn then Test: p-values against their definitions, and the guarantee against simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from backends.early_exit.calibration.learn_then_test import (
    accepted,
    binomial_tail,
    p_value,
    samples_needed,
    upper_bound,
)

LEVEL = 0.05
LIMIT = 0.25
ROUNDS = 3000
NOISE = 3 * math.sqrt(LEVEL * (1 - LEVEL) / ROUNDS)
"""Three standard errors of a simulated share of `LEVEL`."""

shares = st.floats(0.01, 0.99)
samples = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@given(st.integers(1, 40), st.integers(-1, 41), st.integers(1, 19))
def test_the_binomial_tail_is_the_sum_of_its_terms(trials: int, most: int, parts: int) -> None:
    chance = Fraction(parts, 20)
    exact = sum(
        math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k)
        for k in range(min(most, trials) + 1)
    )
    assert binomial_tail(most, trials, float(chance)) == pytest.approx(float(exact), abs=1e-12)


def test_the_binomial_tail_survives_large_numbers() -> None:
    assert binomial_tail(500_000, 1_000_000, 0.5) == pytest.approx(0.5, abs=1e-3)
    assert binomial_tail(10, 1_000_000, 0.5) == 0.0


@given(samples, shares)
def test_a_p_value_is_a_chance_and_binary_losses_have_the_exact_one(
    losses: list[float], limit: float
) -> None:
    assert 0.0 <= p_value(losses, limit) <= 1.0
    rounded = [float(round(loss)) for loss in losses]
    exact = p_value(rounded, limit, binary=True)
    assert exact == pytest.approx(binomial_tail(int(sum(rounded)), len(rounded), limit))


@given(samples, shares, shares, st.booleans())
def test_p_values_fall_with_the_limit_and_rise_with_the_losses(
    losses: list[float], one: float, other: float, binary: bool
) -> None:
    if binary:
        losses = [float(round(loss)) for loss in losses]
    low, high = sorted((one, other))
    assert p_value(losses, high, binary=binary) <= p_value(losses, low, binary=binary) + 1e-12
    worse = [1.0, *losses[1:]]
    assert p_value(losses, one, binary=binary) <= p_value(worse, one, binary=binary) + 1e-12


def test_losses_without_a_fault_leave_the_chance_of_no_fault() -> None:
    assert p_value([0.0] * 11, LIMIT) == pytest.approx(0.75**11)
    assert p_value([0.0] * 11, LIMIT, binary=True) == pytest.approx(0.75**11)
    assert samples_needed(0.0, LIMIT, LEVEL) == 11
    assert samples_needed(0.0, LIMIT, LEVEL, binary=True) == 11


@pytest.mark.parametrize("total", [60, 75, 90])
def test_bentkus_bound_is_e_times_the_binomial_tail(total: int) -> None:
    """The smaller one of both bounds here, and rounded up where the sum is no whole number."""
    losses = [0.5] * (2 * total - 1) + [0.3] + [0.0] * (400 - 2 * total)
    chance = Fraction(1, 4)
    tail = sum(math.comb(400, k) * chance**k * (1 - chance) ** (400 - k) for k in range(total + 1))
    share = sum(losses) / 400
    divergence = share * math.log(share / 0.25) + (1 - share) * math.log((1 - share) / 0.75)
    assert math.e * float(tail) < math.exp(-400 * divergence)
    assert p_value(losses, LIMIT) == pytest.approx(min(1.0, math.e * float(tail)))


@pytest.mark.parametrize("losses", [[], [1.2], [-0.1], [float("nan")]])
def test_impossible_losses_are_refused(losses: list[float]) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        p_value(losses, 0.5)


@pytest.mark.parametrize("limit", [0.0, 1.0, float("nan")])
def test_impossible_limits_are_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="limit"):
        p_value([0.5], limit)


def test_binary_losses_are_zero_or_one() -> None:
    with pytest.raises(ValueError, match="0 or 1"):
        p_value([0.5], 0.5, binary=True)


@given(samples, st.floats(0.001, 0.5), st.booleans())
def test_the_upper_bound_is_where_the_p_value_reaches_the_level(
    losses: list[float], level: float, binary: bool
) -> None:
    if binary:
        losses = [float(round(loss)) for loss in losses]
    bound = upper_bound(losses, level, binary=binary)
    assert math.fsum(losses) / len(losses) <= bound <= 1.0
    if bound < 1 - 1e-9:
        assert p_value(losses, bound + 1e-9, binary=binary) <= level
    if bound > 1e-9 and bound - 1e-9 > math.fsum(losses) / len(losses):
        assert p_value(losses, bound - 1e-9, binary=binary) > level


@given(st.floats(0, 1), shares, st.booleans())
def test_samples_needed_is_enough_and_not_much_more(
    mean: float, limit: float, binary: bool
) -> None:
    count = samples_needed(mean, limit, LEVEL, binary=binary)
    if count is None:
        assert mean > limit - 1e-2
        return
    total = math.ceil(mean * count)
    losses = [1.0] * total + [0.0] * (count - total) if binary else [mean] * count
    assert p_value(losses, limit, binary=binary) <= LEVEL + 1e-9


def test_fixed_sequence_testing_stops_at_the_first_that_is_not_rejected() -> None:
    assert accepted([], 0.05) == 0
    assert accepted([0.2, 0.01], 0.05) == 0
    assert accepted([0.01, 0.05, 0.051, 0.001], 0.05) == 2
    assert accepted([0.01, 0.01], 0.05) == 2
    assert accepted([float("nan"), 0.01], 0.05) == 0


def draw_losses(rng: np.random.Generator, binary: bool, count: int) -> NDArray[np.float64]:
    """(thresholds, prompts) losses that hang together: one hardness per prompt for all settings.
    The true mean losses are 0.10, 0.18, 0.2501 and 0.40, the third just above the limit."""
    means = np.array([0.10, 0.18, LIMIT + 1e-4, 0.40])
    hardness = rng.random(count)
    faults = hardness < means[:, None]
    if binary:
        return faults.astype(float)
    sizes = rng.choice([0.2, 1.0], size=count)
    scaled = hardness < means[:, None] / 0.6
    return np.where(scaled, sizes, 0.0)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("count", [30, 120])
def test_the_guarantee_holds_in_simulation(binary: bool, count: int) -> None:
    rng = np.random.default_rng(count)
    wrong, chosen = 0, []
    for _ in range(ROUNDS):
        losses = draw_losses(rng, binary, count)
        values = [p_value(row.tolist(), LIMIT, binary=binary) for row in losses]
        chosen.append(accepted(values, LEVEL))
        wrong += chosen[-1] > 2
    assert wrong / ROUNDS <= LEVEL + NOISE
    if count == 120:
        assert np.mean([number >= 1 for number in chosen]) > 0.95
    if binary:
        assert wrong / ROUNDS > LEVEL / 10, "the exact test uses its level up"


def test_the_exact_test_uses_its_level_up_where_the_hypothesis_barely_holds() -> None:
    rng = np.random.default_rng(1)
    losses = (rng.random((ROUNDS, 120)) < LIMIT).astype(float)
    share = np.mean([p_value(row.tolist(), LIMIT, binary=True) <= LEVEL for row in losses])
    assert LEVEL / 2 - NOISE <= share <= LEVEL + NOISE


def test_prompts_of_unequal_workloads_keep_the_guarantee() -> None:
    """Half of the losses have mean 0.02 and half 0.48: their mixture's mean is the limit."""
    rng = np.random.default_rng(2)
    chances = np.repeat([0.02, 0.48], 60)
    losses = (rng.random((ROUNDS, 120)) < chances).astype(float)
    for binary in (True, False):
        share = np.mean([p_value(row.tolist(), LIMIT, binary=binary) <= LEVEL for row in losses])
        assert share <= LEVEL + NOISE


def test_the_upper_bound_covers_the_mean() -> None:
    rng = np.random.default_rng(3)
    draws = rng.beta(0.3, 1.2, size=(ROUNDS // 3, 60))
    covered = np.mean([upper_bound(row.tolist(), LEVEL) >= 0.2 for row in draws])
    assert covered >= 1 - LEVEL - NOISE * math.sqrt(3)
