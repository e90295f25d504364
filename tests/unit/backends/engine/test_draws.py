"""The C++ kernels draw what the definition in Python draws, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from backends.engine.draws import Draws
from backends.engine.sampling import TokenSampling, draw, noise, weigh
from backends.kernels.cpu import native, native_checks

pytestmark = pytest.mark.skipif(not native_checks.available(), reason="no C++ compiler")

TEMPERATURES = (0.05, 0.7, 1.0, 2.5, 1e6, 1e-6, 1e-300, 1e-308, 5e-324)
TOP_PS = (1.0, 0.9, 0.5, 0.999999, 1e-3, 1e-300, 1 - 2**-53)


def logits_of(rng: np.random.Generator, rows: int, size: int) -> torch.Tensor:
    """Peaked and flat ones, with ties, minus infinity and huge distances."""
    found = rng.standard_normal((rows, size)) * rng.choice([0.0, 0.1, 3.0, 30.0, 1e30], (rows, 1))
    coarse = rng.random((rows, 1)) < 0.4
    found = np.where(coarse, np.round(found), found)
    found[rng.random((rows, size)) < 0.2] = -np.inf
    found[rng.random(rows) < 0.2] = 1.5
    found[:, rng.integers(size)] = 2.0
    return torch.from_numpy(found.astype(np.float32))


@pytest.mark.parametrize("seed", range(30))
def test_what_a_draw_is_made_of_is_equal_in_every_bit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = logits_of(rng, 1, 4096).numpy()[0]
    temperature = TEMPERATURES[seed % len(TEMPERATURES)]
    position, key = int(rng.integers(2**31)), int(rng.integers(2**63))
    noises, weights = np.empty(4096), np.empty(4096)
    native.library().draw_parts(
        *(logits.ctypes.data, 4096, temperature, key, position),
        *(noises.ctypes.data, weights.ctypes.data),
    )
    assert (noises == noise(key, position, 4096)).all()
    assert (weights == weigh(logits, temperature)).all()


@pytest.mark.parametrize("size", [1, 7, 97, 1280, 4096, 32_003])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_draws_are_those_of_the_definition(size: int, threads: int) -> None:
    rng = np.random.default_rng(size + threads)
    for rows in (1, 3, 21) if size < 4096 else (1, 9):
        logits = logits_of(rng, rows, size)
        samplings = [
            TokenSampling(
                float(rng.choice(TEMPERATURES)),
                float(rng.choice(TOP_PS)),
                int(rng.integers(-(2**62), 2**62)),
            )
            for _ in range(rows)
        ]
        positions = rng.integers(2**31, size=rows).tolist()
        expected = [
            draw(*given) for given in zip(logits, samplings, positions, strict=True)
        ]  # fmt: skip
        tokens, sure = Draws(samplings).choose(logits, positions, threads)
        assert [*zip(tokens, sure, strict=True)] == expected
        picked = [*range(rows)][::2]
        some = Draws(samplings).of(picked)
        alone = some.choose(logits[::2], [positions[row] for row in picked], threads)
        assert alone == (tokens[::2], sure[::2]), "a row's draw does not depend on its company"


def test_what_is_no_number_is_never_drawn() -> None:
    nan, inf = np.nan, np.inf
    for row in ([nan, 1.0, 0.5], [1.0, nan, 0.5], [nan] * 3, [-inf] * 3, [0.0, inf, 1.0]):
        logits = torch.tensor([row] * 50)
        for top_p in (1.0, 0.6):
            how = [TokenSampling(1.0, top_p, seed=4)] * 50
            found = Draws(how).choose(logits, range(50))
            assert found == tuple(
                map(list, zip(*map(draw, logits, how, range(50)), strict=True))
            )  # fmt: skip
            if np.isfinite(np.fmax.reduce(row)):
                assert np.isfinite([row[token] for token in found[0]]).all()
            else:
                assert found == ([-1] * 50, [0.0] * 50)


def test_top_p_stops_at_the_token_that_reaches_the_mass_exactly() -> None:
    """Quarters are exact in binary: two of them are half, and the third is one too many."""
    tokens, _ = Draws([TokenSampling(1.0, 0.5)] * 200).choose(torch.zeros(200, 4), range(200))
    assert {*tokens} == {0, 1}


def test_samples_follow_the_distribution() -> None:
    """Chi-square of 20,000 draws, of all tokens and of those that `top_p` keeps."""
    logits = torch.linspace(-1, 3, 12)[
        torch.randperm(12, generator=torch.Generator().manual_seed(1))
    ]
    probabilities = torch.softmax(logits.double() / 1.3, 0)
    order = torch.argsort(probabilities, descending=True)
    kept = order[torch.cumsum(probabilities[order], 0) - probabilities[order] < 0.8]
    for top_p, among in ((1.0, order), (0.8, kept)):
        how = Draws([TokenSampling(1.3, top_p, seed=9)] * 20_000)
        tokens, _ = how.choose(logits.repeat(20_000, 1), range(20_000))
        counts = np.bincount(tokens, minlength=12)
        expected = (20_000 * probabilities[among] / probabilities[among].sum()).numpy()
        assert counts.sum() == counts[among].sum()
        chi = ((counts[among] - expected) ** 2 / expected).sum()
        assert chi < {12: 31.3, len(kept): 24.4}[len(among)]  # 11 and up to 7 degrees: 1 in 1,000


def test_without_a_compiler_the_definition_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    how, logits = Draws([TokenSampling(0.8, 0.9, seed=n) for n in range(4)]), torch.randn(4, 97)
    expected = how.choose(logits, range(4))
    monkeypatch.setattr(native_checks, "available", lambda: False)
    assert how.choose(logits, range(4)) == expected
