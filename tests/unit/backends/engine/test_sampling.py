"""Choosing tokens: the right distribution, and nothing but logits, seed and position in it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from backends.engine.sampling import TokenSampling, select, uniform


def frequencies(sampling: TokenSampling, logits: torch.Tensor, draws: int = 4000) -> np.ndarray:
    found = [select(logits, sampling, position) for position in range(draws)]
    return np.bincount(found, minlength=len(logits)) / draws


def test_greedy_takes_the_lowest_of_equal_maxima() -> None:
    assert select(torch.tensor([0.0, 3.0, 3.0, -1.0]), TokenSampling(), 7) == 1


def test_samples_follow_the_warmed_distribution() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -8.0])
    expected = torch.softmax(logits / 0.7, 0).numpy()
    found = frequencies(TokenSampling(0.7, seed=3), logits)
    assert np.abs(found - expected).max() < 0.025


def test_top_p_keeps_the_smallest_set_of_that_mass() -> None:
    logits = torch.log(torch.tensor([0.15, 0.5, 0.05, 0.3]))
    found = frequencies(TokenSampling(1.0, top_p=0.7), logits)
    assert found[[0, 2]].tolist() == [0.0, 0.0]
    assert found[1] == pytest.approx(0.5 / 0.8, abs=0.03)
    only = frequencies(TokenSampling(1.0, top_p=0.4), logits, 50)
    assert only.tolist() == [0, 1, 0, 0]


def test_top_p_stops_at_the_token_that_reaches_the_mass_exactly() -> None:
    """Quarters are exact in binary: two of them are half, and the third is one too many."""
    found = frequencies(TokenSampling(1.0, top_p=0.5), torch.zeros(4), 400)
    assert found[2:].tolist() == [0.0, 0.0]
    assert min(found[:2]) > 0.4


def test_a_token_without_probability_is_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.engine.sampling.uniform", lambda *_: 1 - 2**-53)
    logits = torch.tensor([0.0, 1.0, -torch.inf])
    assert select(logits, TokenSampling(1.0), 0) == 1


def test_uniform_numbers_are_even_and_independent_of_their_neighbours() -> None:
    grid = np.array([[uniform(seed, place) for place in range(300)] for seed in range(100)])
    counts, _ = np.histogram(grid, bins=20, range=(0, 1))
    assert ((counts - 1500) ** 2 / 1500).sum() < 45  # chi-square, 19 degrees: 1 in 1,000
    assert abs(np.corrcoef(grid[:, 0], grid[:, 1])[0, 1]) < 0.35
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.02
    assert uniform(-1, 0) == uniform(2**64 - 1, 0)
