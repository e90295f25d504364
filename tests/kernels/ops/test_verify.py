"""Verification: greedy tokens, accepted prefixes, sampling with a given uniform number."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from backends.kernels.exit_head import HeadScratch
from backends.kernels.verify import (
    accepted_prefix,
    accepted_prefix_reference,
    final_logits,
    greedy,
    greedy_reference,
    sample,
    sample_reference,
)
from tests.support.engine.kernel_cases import DEVICE, DTYPES, assert_near, integers, noise, poisoned


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width", "size"), [(6, 100, 777), (1, 64, 64)])
def test_greedy_and_the_logits_it_compares(
    rows: int, width: int, size: int, dtype: torch.dtype
) -> None:
    hidden, matrix = noise(rows, width, dtype=dtype), noise(size, width, dtype=dtype, seed=1)
    tokens, logits = poisoned(rows, dtype=torch.int32), poisoned(rows, size)
    greedy(hidden, matrix, HeadScratch.allocate(rows, size, DEVICE), tokens)
    final_logits(hidden, matrix, logits)
    assert tokens.tolist() == greedy_reference(hidden, matrix).tolist()
    assert_near(logits, hidden.float() @ matrix.float().T, torch.float32, 16.0)
    assert tokens.tolist() == logits.cpu().argmax(-1).tolist()


@pytest.mark.parametrize(
    ("tokens", "drafts", "slots", "expected"),
    [
        ([5, 6, 7, 8], [5, 6, 7, -1], [0, 0, 0, 0], [3, 3, 3, 3]),
        ([5, 6, 7, 8], [5, 9, 7, -1], [0, 0, 0, 0], [1, 1, 1, 1]),
        ([5, 6, 7], [4, 6, -1], [2, 2, 2], [0, 0, 0]),
        ([1], [-1], [0], [0]),
        ([1, 2, 3, 4, 5], [1, -1, -1, 4, -1], [3, 3, 0, 1, 1], [1, 1, 0, 1, 1]),
    ],
)
def test_accepted_prefix(
    tokens: list[int], drafts: list[int], slots: list[int], expected: list[int]
) -> None:
    out = poisoned(len(tokens), dtype=torch.int32)
    accepted_prefix(integers(tokens), integers(drafts), integers(slots), out)
    assert out.tolist() == expected
    arguments = integers(tokens), integers(drafts), integers(slots)
    assert accepted_prefix_reference(*arguments).tolist() == expected


def draw(logits: Tensor, uniform: Tensor, temperature: Tensor, top_p: Tensor) -> Tensor:
    tokens = poisoned(len(logits), dtype=torch.int32)
    sample(logits, uniform, temperature, top_p, tokens)
    return tokens


@pytest.mark.parametrize("size", [50, 4096, 5003])
@pytest.mark.parametrize("share", [1.0, 0.9, 0.3])
def test_sampling(size: int, share: float) -> None:
    """The reference's token, except where the uniform lies within rounding of a boundary."""
    logits = noise(5, size) * 3.0
    uniform = torch.tensor([0.0, 0.2, 0.51, 0.83, 0.9999], device=DEVICE)
    temperature = torch.tensor([1.0, 0.7, 1.5, 0.3, 1.0], device=DEVICE)
    top_p = torch.full((5,), share, device=DEVICE)
    tokens = draw(logits, uniform, temperature, top_p)
    expected, cumulative = sample_reference(logits, uniform, temperature, top_p)
    near = (cumulative - uniform.double()[:, None]).abs().amin(-1) < 1e-6
    assert near.sum() <= 1
    assert ((tokens == expected) | near).all()


def test_top_p_keeps_the_smallest_set_that_is_enough() -> None:
    """By hand: probabilities .5 .25 .125 .125 in ids 2, 0, 3, 1."""
    logits = torch.tensor([[0.25, 0.125, 0.5, 0.125]], device=DEVICE).log()
    one = torch.ones(1, device=DEVICE)
    table = {
        (0.4, 0.999): 2,
        (0.6, 0.3): 0,
        (0.6, 0.34): 2,
        (0.8, 0.2): 0,
        (0.8, 0.26): 1,
        (0.8, 0.999): 3,
    }
    for (share, uniform), token in table.items():
        assert draw(logits, one * uniform, one, one * share).tolist() == [token], (share, uniform)


def test_a_low_temperature_is_greedy_and_the_top_of_the_range_is_held() -> None:
    logits = noise(3, 500)
    ones = torch.ones(3, device=DEVICE)
    cold = draw(logits, ones * 0.99999994, ones * 1e-3, ones)
    assert cold.tolist() == logits.argmax(-1).tolist()
    logits[:, 400:] = float("-inf")
    assert draw(logits, ones * 0.99999994, ones, ones).max() < 400


def test_a_sampled_row_is_its_own() -> None:
    logits, ones = noise(6, 300), torch.ones(6, device=DEVICE)
    uniform = torch.linspace(0.05, 0.95, 6, device=DEVICE)
    logits[0] = float("nan")
    together = draw(logits, uniform, ones, ones * 0.8)
    alone = draw(logits[4:5], uniform[4:5], ones[:1], ones[:1] * 0.8)
    assert together[4:5].tolist() == alone.tolist()
