"""The exit head against its reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.engine.model.heads import ExitHead, in_8_bits
from backends.kernels.exit_head import (
    HeadScratch,
    exit_head,
    exit_head_reference,
    final_logits,
)
from tests.support.engine.kernel_cases import DEVICE, DTYPES, assert_near, noise, poisoned


def run(
    hidden: Tensor,
    matrix: Tensor,
    token_ids: Tensor | None = None,
    scales: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    rows = len(hidden)
    scratch = HeadScratch.allocate(rows, len(matrix), DEVICE)
    for tensor in (scratch.maxima, scratch.sums):
        tensor.fill_(float("nan"))
    tokens, confidence = poisoned(rows, dtype=torch.int32), poisoned(rows)
    exit_head(hidden, matrix, scratch, tokens, confidence, token_ids=token_ids, scales=scales)
    return tokens, confidence


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "width", "size"),
    [(1, 64, 128), (3, 100, 1003), (8, 200, 65), (17, 63, 64), (2, 32, 1)],
)
def test_against_the_reference(rows: int, width: int, size: int, dtype: torch.dtype) -> None:
    hidden, matrix = noise(rows, width, dtype=dtype), noise(size, width, dtype=dtype, seed=1) * 0.2
    tokens, confidence = run(hidden, matrix)
    expected, probability = exit_head_reference(hidden, matrix)
    assert tokens.tolist() == expected.tolist()
    assert_near(confidence, probability, torch.float32, 64.0)


def test_a_vocabulary_of_32003() -> None:
    hidden, matrix = noise(2, 48), noise(32003, 48, seed=1) * 0.3
    matrix[32002] = hidden[1]
    tokens, confidence = run(hidden, matrix)
    expected, probability = exit_head_reference(hidden, matrix)
    assert tokens.tolist() == expected.tolist()
    assert tokens[1] == 32002
    assert_near(confidence, probability, torch.float32, 64.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matrix_of_8_bits_is_the_nearest_in_each_row(dtype: torch.dtype) -> None:
    """Rows of unlike sizes, one of zeros: what is rounded is less than a 16th of each number, but
    for the least, and the kernel computes with what is left."""
    hidden, wide = noise(5, 100, dtype=dtype), noise(203, 100, seed=1)
    wide *= torch.logspace(-6, 2, 203, device=DEVICE)[:, None]
    wide[7] = 0
    head = in_8_bits(ExitHead(1, wide.to(dtype)))
    assert head.matrix.dtype == torch.float8_e4m3fn
    assert isinstance(head.matrix, Tensor)
    given, kept = wide.to(dtype).float(), head.plain()
    most = given.abs().amax(1, keepdim=True)
    assert ((kept - given).abs() <= given.abs() / 16 + most * 2**-17).all()
    assert kept[7].abs().max() == 0
    tokens, confidence = run(hidden, head.matrix, scales=head.scales)
    expected, probability = exit_head_reference(hidden, head.matrix, scales=head.scales)
    assert tokens.tolist() == expected.tolist()
    assert_near(confidence, probability, torch.float32, 64.0)


def test_the_lowest_place_wins_a_tie_within_and_across_blocks() -> None:
    hidden, matrix = noise(1, 32), noise(300, 32, seed=1) * 0.01
    for place in (299, 130, 131, 255):
        matrix[place] = hidden[0]
    assert run(hidden, matrix)[0].tolist() == [130]


def test_a_shortlist_names_its_tokens() -> None:
    hidden, matrix = noise(3, 40), noise(90, 40, seed=1)
    ids = torch.randperm(5000, generator=torch.Generator().manual_seed(1))[:90].to(DEVICE)
    tokens, confidence = run(hidden, matrix, token_ids=ids)
    place, probability = exit_head_reference(hidden, matrix)
    assert tokens.tolist() == ids[place.long()].tolist()
    assert_near(confidence, probability, torch.float32, 64.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_bitwise_its_own(dtype: torch.dtype) -> None:
    hidden, matrix = noise(8, 100, dtype=dtype), noise(131, 100, dtype=dtype, seed=1) * 0.3
    hidden[0] = float("nan")
    tokens, confidence = run(hidden, matrix)
    moved = run(hidden.flip(0).contiguous(), matrix)
    assert torch.equal(tokens[1:].flip(0), moved[0][:7])
    assert torch.equal(confidence[1:].flip(0), moved[1][:7])
    for row in (1, 7):
        alone = run(hidden[row : row + 1], matrix)
        assert torch.equal(alone[0], tokens[row : row + 1])
        assert torch.equal(alone[1], confidence[row : row + 1])


def test_logits_that_are_no_numbers_give_no_token() -> None:
    hidden = noise(2, 32)
    hidden[1] = float("nan")
    tokens, confidence = run(hidden, noise(70, 32, seed=1))
    assert tokens[0] >= 0
    assert tokens[1] == -1
    assert confidence[1].isnan()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width", "size"), [(6, 100, 777), (1, 64, 64)])
def test_the_final_logits_are_those_it_compares(
    rows: int, width: int, size: int, dtype: torch.dtype
) -> None:
    hidden, matrix = noise(rows, width, dtype=dtype), noise(size, width, dtype=dtype, seed=1)
    logits = poisoned(rows, size)
    final_logits(hidden, matrix, logits)
    assert_near(logits, hidden.float() @ matrix.float().T, torch.float32, 16.0)
    assert run(hidden, matrix)[0].tolist() == logits.cpu().argmax(-1).tolist()


def test_misfits_are_one_line() -> None:
    with pytest.raises(EngineError, match=r"^kernel exit_head: 65 rows, expected 1 to 64"):
        run(noise(65, 16), noise(8, 16))
    with pytest.raises(EngineError, match=r"^kernel exit_head: matrix has shape \[8, 15]"):
        run(noise(2, 16), noise(8, 15))
