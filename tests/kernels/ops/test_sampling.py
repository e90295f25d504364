"""Sampling on the device against its definition, `backends.engine.sampling.draw`, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from backends.engine.draws import Draws
from backends.engine.model.architecture import EngineError
from backends.engine.sampling import TokenSampling, draw
from backends.kernels.sampling import TOGETHER, TOKENS_BLOCK, SamplingScratch, sample
from tests.support.engine.kernel_cases import DEVICE, noise, poisoned

INF, NAN = float("inf"), float("nan")
SEEDS = (0, 7, 2**63 + 5, -1 % 2**64)
POSITIONS = (0, 1, 513, 31_337, 99_999, 100_000)
SHARES = (1.0, 0.9, 0.5, 1e-6)
EVERY = [
    TokenSampling(temperature, top_p, SEEDS[number % len(SEEDS)])
    for number, (temperature, top_p) in enumerate(
        itertools.product((0.01, 0.7, 1.0, 5.0), (*SHARES, 0.99))
    )
]


def poisoned_scratch(rows: int, size: int) -> SamplingScratch:
    scratch = SamplingScratch.allocate(rows, size, DEVICE)
    for tensor in (scratch.scores, scratch.highest, scratch.best):
        tensor.fill_(INF)
    for tensor in (scratch.masses, scratch.totals, scratch.heaviest, scratch.places):
        tensor.fill_(2**31 - 1)
    return scratch


def run(
    logits: Tensor,
    samplings: Sequence[TokenSampling],
    positions: Sequence[int],
    scratch: SamplingScratch | None = None,
    dtype: torch.dtype = torch.int64,
) -> list[tuple[int, float]]:
    rows = len(logits)
    seeds = np.array([how.seed % 2**64 for how in samplings], np.uint64).view(np.int64)
    doubles = [[how.temperature for how in samplings], [how.top_p for how in samplings]]
    temperature, top_p = torch.tensor(doubles, dtype=torch.float64, device=DEVICE)
    tokens, sure = poisoned(rows, dtype=torch.int32), poisoned(rows)
    sample(
        *(logits, temperature, top_p, torch.from_numpy(seeds).to(DEVICE)),
        torch.tensor(positions, dtype=dtype, device=DEVICE),
        scratch or poisoned_scratch(rows, logits.shape[1]),
        *(tokens, sure),
    )
    return list(zip(tokens.tolist(), sure.tolist(), strict=True))


def defined(
    logits: Tensor, samplings: Sequence[TokenSampling], positions: Sequence[int]
) -> list[tuple[int, float]]:
    each = zip(logits.cpu(), samplings, positions, strict=True)
    return [draw(row, how, position) for row, how, position in each]


def places(rows: int, first: int = 0) -> list[int]:
    return [POSITIONS[(first + row) % len(POSITIONS)] for row in range(rows)]


@pytest.mark.parametrize("spread", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("size", [1, 97, 777, TOKENS_BLOCK, 5000])
def test_as_defined(size: int, spread: float) -> None:
    rows = len(EVERY)
    logits = noise(rows, size, seed=3) * spread
    for first, dtype in enumerate((torch.int32, torch.int64) if size < 1000 else (torch.int32,)):
        positions = places(rows, first + size)
        assert run(logits, EVERY, positions, dtype=dtype) == defined(logits, EVERY, positions)


def test_a_vocabulary_of_32003() -> None:
    hows = [TokenSampling(1.0, top_p, 11) for top_p in (1.0, 0.9, 1e-6)]
    logits = noise(3, 32_003) * torch.tensor([[3.0], [0.0], [0.01]], device=DEVICE)
    assert run(logits, hows, [5, 6, 7]) == defined(logits, hows, [5, 6, 7])


@pytest.mark.parametrize("top_p", [*SHARES, 0.0, NAN])
def test_ties_go_to_the_lowest_token(top_p: float) -> None:
    """Integers as logits: many equal masses, which stand in the order of their tokens."""
    logits = noise(8, 3000).round()
    logits[4:] = 0.0
    hows = [TokenSampling(0.5 + row % 4, top_p, row) for row in range(8)]
    assert run(logits, hows, range(8)) == defined(logits, hows, range(8))


def test_every_boundary_of_top_p() -> None:
    """Four equal masses: a share of 1/4, 1/2 or 3/4 is met exactly."""
    shares = [0.25, 0.5, 0.75, *(np.nextafter(x, y) for x in (0.25, 0.5) for y in (0.0, 1.0))]
    hows = [TokenSampling(1.0, float(top_p), seed) for top_p in shares for seed in range(6)]
    logits = torch.zeros(len(hows), 4, device=DEVICE)
    got = run(logits, hows, [3] * len(hows))
    assert got == defined(logits, hows, [3] * len(hows))
    assert {token for token, _ in got[:6]} == {0}


@pytest.mark.parametrize("top_p", [1.0, 0.5])
def test_logits_that_are_no_numbers(top_p: float) -> None:
    size = 2 * TOGETHER * TOKENS_BLOCK + 5
    logits = noise(8, size)
    logits[0] = NAN
    logits[1] = -INF
    logits[2, [40, size - 1]] = INF
    logits[3, ::2], logits[3, 1::2] = NAN, -INF
    logits[4, : size - 3] = NAN
    logits[5, 5:] = -INF
    logits[6, 1] = NAN
    logits[7, 2], logits[7, 3] = 3.4e38, -3.4e38
    hows = [TokenSampling(1.0, top_p, row) for row in range(8)]
    got = run(logits, hows, range(8))
    assert got == defined(logits, hows, range(8))
    assert [got[row] for row in (0, 1, 2, 3)] == [(-1, 0.0)] * 4
    assert got[4][0] >= size - 3


@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1e30, 1e300, INF, NAN, 0.0])
def test_temperatures_beyond_all_use(temperature: float) -> None:
    logits = noise(4, 777)
    logits[3, 7] = -INF
    hows = [TokenSampling(temperature, top_p, 5) for top_p in SHARES]
    assert run(logits, hows, [9] * 4) == defined(logits, hows, [9] * 4)


def test_a_row_is_bitwise_its_own() -> None:
    """Whatever its neighbours are, and in a scratch for more rows."""
    hows, positions = EVERY[:6], places(6)
    logits = noise(6, 1500) * 4.0
    together = run(logits, hows, positions)
    logits[0] = NAN
    assert run(logits, hows, positions)[1:] == together[1:]
    turned = run(logits.flip(0).contiguous(), hows[::-1], positions[::-1])
    assert turned[:5] == together[:0:-1]
    room = poisoned_scratch(9, 1500)
    for row in (1, 5):
        one = slice(row, row + 1)
        assert run(logits[one], hows[one], positions[one], room) == together[one]


def test_misfits_are_one_line() -> None:
    hows = [TokenSampling(1.0)] * 2
    with pytest.raises(EngineError, match=r"^kernel sample: masses has shape \[1, 50], expected"):
        run(noise(2, 50), hows, [0, 1], SamplingScratch.allocate(1, 50, DEVICE))
    with pytest.raises(EngineError, match=r"^kernel sample: logits is torch.float64, expected"):
        run(noise(2, 50).double(), hows, [0, 1])


def test_what_the_engine_draws_there_is_what_it_draws_on_the_host() -> None:
    samplings = [how for how in EVERY if how.temperature > 0.1]
    logits = 3 * noise(len(samplings), 777, seed=4)
    draws, positions = Draws(samplings), np.arange(len(samplings), dtype=np.int32) * 7 + 1
    assert draws.on_device(logits, positions) == draws.choose(logits.cpu(), positions)
    assert draws.on_device(logits, positions.tolist()) == draws.choose(logits, positions)
