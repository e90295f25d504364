"""Choosing tokens: the right distribution, and nothing but logits, seed and position in it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from backends.engine.sampling import (
    TokenSampling,
    _exponential,
    _logarithm,
    draw,
    noise,
    select,
    uniform,
    weigh,
)


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
    monkeypatch.setattr("backends.engine.sampling.noise", lambda *_: np.array([20.0, 20.0, 1e-16]))
    logits = torch.tensor([0.0, 1.0, -torch.inf])
    assert select(logits, TokenSampling(1.0), 0) == 1


def test_uniform_numbers_are_even_and_independent_of_their_neighbours() -> None:
    grid = np.array([[uniform(seed, place, 4) for place in range(300)] for seed in range(100)])
    for axis in range(4):
        counts, _ = np.histogram(grid[:, :, axis], bins=20, range=(0, 1))
        assert ((counts - 1500) ** 2 / 1500).sum() < 45  # chi-square, 19 degrees: 1 in 1,000
    for one, other in (
        (grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:]), (grid[..., :-1], grid[..., 1:])
    ):  # fmt: skip
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.01
    assert (uniform(-1, 0, 3) == uniform(2**64 - 1, 0, 3)).all()
    assert (uniform(5, 7, 9)[:4] == uniform(5, 7, 4)).all(), "a longer row begins with a shorter"
    assert 0 < grid.min() < grid.max() < 1


def test_noise_is_exponential_and_its_negative_logarithm_gumbels() -> None:
    found = np.concatenate([noise(1, position, 100) for position in range(500)])
    assert found.mean() == pytest.approx(1, abs=0.02)
    assert found.var() == pytest.approx(1, abs=0.05)
    gumbel = -np.log(found)
    assert gumbel.mean() == pytest.approx(0.5772, abs=0.02)
    assert gumbel.var() == pytest.approx(np.pi**2 / 6, abs=0.05)


def test_logarithm_and_exponential_are_those_of_a_library() -> None:
    even = np.concatenate([uniform(2, 3, 20_000), [2.0**-53, 0.5, 1 - 2.0**-53, 1.0]])
    assert np.abs(_logarithm(even) - np.log(even)).max() < 1e-14
    near_1 = 1 - even * 1e-9
    assert np.allclose(_logarithm(near_1), np.log(near_1), rtol=1e-15, atol=0)
    below = np.concatenate([-700 * even, [0.0, -700.0]])
    assert np.allclose(_exponential(below), np.exp(below), rtol=1e-15, atol=0)
    assert _exponential(np.array([-701.0, -np.inf, np.nan])).tolist() == [0, 0, 0]
    assert _exponential(np.zeros(1)) == 1
    logits = np.array([1.0, 3.0, -np.inf, np.nan], np.float32)
    assert weigh(logits, 2.0) == pytest.approx([np.exp(-1), 1, 0, 0], rel=1e-14)


def test_a_draw_tells_the_probability_before_top_p() -> None:
    logits = torch.tensor([0.3, 2.0, -1.0, 0.0])
    expected = torch.softmax(logits / 0.7, 0)
    for position in range(40):
        token, sure = draw(logits, TokenSampling(0.7, 0.5, seed=1), position)
        assert token == 1
        assert sure == pytest.approx(expected[1])
        token, sure = draw(logits, TokenSampling(0.7, seed=1), position)
        assert sure == pytest.approx(expected[token])


def test_shared_noise_accepts_nearly_what_rejection_sampling_does() -> None:
    """Daliri et al., 2024: between (1 - d) / (1 + d) and 1 - d, d the total variation."""
    draw = torch.Generator().manual_seed(4)
    same, most, least = [], [], []
    for pair in range(40):
        draft, target = (2 * torch.randn(30, generator=draw) for _ in range(2))
        target = 0.5 * target + 0.5 * draft
        p, q = torch.softmax(target, 0), torch.softmax(draft, 0)
        apart = float(0.5 * (p - q).abs().sum())
        sampling = TokenSampling(1.0, seed=pair)
        hits = [
            select(target, sampling, place) == select(draft, sampling, place)
            for place in range(400)
        ]
        same.append(np.mean(hits))
        most.append(1 - apart)
        least.append((1 - apart) / (1 + apart))
    assert np.mean(least) - 0.01 < np.mean(same) < np.mean(most) + 0.01
    assert np.mean(same) > (np.mean(least) + np.mean(most)) / 2


def test_no_temperature_is_too_small() -> None:
    logits = torch.tensor([-1.0, 0.5, 9.0, 3.0])
    assert [select(logits, TokenSampling(t), 0) for t in (1e-300, 1e-308, 1e-310)] == [2, 2, 2]
