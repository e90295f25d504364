"""The chi-square test of sampled tokens against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.support.chi_square import NOTHING, ChiSquare, fit, joined


def test_the_statistic_and_its_p_value() -> None:
    found = fit(np.array([60, 40]), np.array([0.5, 0.5]))
    assert (found.statistic, found.degrees, found.tokens) == (4.0, 1, 100)
    assert found.p_value == pytest.approx(0.0455, abs=1e-4)
    assert ChiSquare(18.307, 10, 0).p_value == pytest.approx(0.05, abs=1e-5), "of the tables"


def test_bins_that_expect_little_are_put_together() -> None:
    probabilities = np.array([0.5, 0.44, 0.02, 0.02, 0.02])
    found = fit(np.array([50, 44, 0, 6, 0]), probabilities)
    assert (found.statistic, found.degrees) == (0.0, 2), "the last three expect 6 together"
    few = fit(np.array([50, 48, 2, 0, 0]), np.array([0.5, 0.48, 0.02, 0.0, 0.0]))
    assert (few.statistic, few.degrees) == (0.0, 1), "2 and 48 are one bin"
    assert fit(np.array([3, 0]), np.array([0.9, 0.1])) == ChiSquare(0.0, 0, 3)


def test_what_cannot_be_is_no_accident() -> None:
    found = fit(np.array([99, 1]), np.array([1.0, 0.0]))
    assert found.p_value == 0.0
    assert joined([fit(np.array([60, 40]), np.array([0.5, 0.5])), found]).p_value == 0.0


def test_samples_join() -> None:
    assert joined([]) == NOTHING
    assert NOTHING.p_value == 1.0
    assert joined([ChiSquare(1.5, 2, 10), ChiSquare(2.5, 3, 20)]) == ChiSquare(4.0, 5, 30)


def test_samples_of_the_probabilities_fit_and_others_do_not() -> None:
    draw = np.random.default_rng(0)
    probabilities = draw.dirichlet(np.full(50, 0.3))
    counts = draw.multinomial(20_000, probabilities)
    assert fit(counts, probabilities).p_value > 1e-3
    warmer = probabilities**0.9 / (probabilities**0.9).sum()
    assert fit(counts, warmer).p_value < 1e-9
