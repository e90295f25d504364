"""The confidence measures of early exit against their references, by hand, and against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.kernels.exit_confidence import (
    cosine,
    cosine_reference,
    cosine_rows,
    top2,
    top2_margin,
    top2_reference,
)
from tests.support.engine.kernel_cases import DEVICE, DTYPES, assert_near, noise, poisoned


def run(logits: Tensor) -> tuple[Tensor, Tensor]:
    margins = poisoned(len(logits))
    tokens = poisoned(len(logits), dtype=torch.int32)
    top2(logits, margins, tokens)
    return margins, tokens


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "size"), [(1, 2), (3, 100), (2, 4096), (5, 4097), (2, 9001)])
def test_margin_against_the_reference(rows: int, size: int, dtype: torch.dtype) -> None:
    logits = (noise(rows, size) * 4.0).to(dtype)
    margins, tokens = run(logits)
    expected, ids = top2_reference(logits)
    assert_near(margins, expected, torch.float32, 16.0)
    assert tokens.tolist() == ids.tolist()
    probable = logits.float().softmax(-1).topk(2, -1).values
    assert_near(expected, probable[:, 0] - probable[:, 1], torch.float32)


def test_margin_by_hand() -> None:
    """Probabilities 1/2, 1/4, 1/8, 1/8; the same shifted; a tie; one certain token."""
    row = torch.tensor([0.125, 0.5, 0.125, 0.25]).log()
    certain = torch.tensor([-200.0, -200.0, 200.0, -200.0])
    tie = torch.tensor([1.0, 3.0, 0.0, 3.0])
    margins, tokens = run(torch.stack([row, row + 300.0, tie, certain]).to(DEVICE))
    assert margins.tolist() == pytest.approx([0.25, 0.25, 0.0, 1.0], abs=1e-4)
    assert tokens.tolist() == [1, 1, 1, 2]


@pytest.mark.parametrize("apart", [1, 4096, 8192])
def test_the_two_largest_may_share_a_lane(apart: int) -> None:
    logits = torch.zeros(2, 9000, device=DEVICE)
    logits[0, 7], logits[0, 7 + apart] = 20.0, 19.0
    logits[1, 7], logits[1, 7 + apart] = 19.0, 20.0
    margins, tokens = run(logits)
    assert_near(margins, top2_reference(logits)[0], torch.float32, 16.0)
    assert tokens.tolist() == [7, 7 + apart]


def test_equal_logits_across_steps_have_no_margin() -> None:
    logits = torch.zeros(1, 9000, device=DEVICE)
    logits[0, 11] = logits[0, 11 + 4096] = 30.0
    margins, tokens = run(logits)
    assert margins.tolist() == [0.0]
    assert tokens.tolist() == [11]


def test_masked_tokens_and_nan() -> None:
    """-inf is a probability of 0; NaN passes no threshold and moves no other row."""
    logits = noise(3, 5000)
    logits[0, 17:] = float("-inf")
    logits[1, 4321] = float("nan")
    margins, tokens = run(logits)
    expected, ids = top2_reference(logits)
    assert margins[1].isnan()
    assert not bool((margins > 0.0)[1])
    assert_near(margins[[0, 2]], expected[[0, 2]], torch.float32, 16.0)
    assert tokens.tolist()[::2] == ids.tolist()[::2]
    assert 0 <= tokens[1] < 5000


def test_rows_may_be_cut_off_a_padded_vocabulary() -> None:
    """As vLLM hands them out where a vocabulary is no multiple of 64."""
    wide = noise(4, 5056)
    assert torch.equal(top2_margin(wide[:, :5000]), top2_margin(wide[:, :5000].contiguous()))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_bitwise_its_own(dtype: torch.dtype) -> None:
    logits = noise(6, 5000, dtype=dtype)
    logits[2] = float("nan")
    assert torch.equal(top2_margin(logits)[4:5], top2_margin(logits[4:5]))
    a, b = noise(6, 100, dtype=dtype), noise(6, 100, dtype=dtype, seed=1)
    a[2] = float("nan")
    assert torch.equal(cosine_rows(a, b)[4:5], cosine_rows(a[4:5], b[4:5]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 63), (8, 256), (2, 4100)])
def test_cosine_against_the_reference(rows: int, width: int, dtype: torch.dtype) -> None:
    a = noise(rows, width, dtype=dtype)
    b = (a.float() + 0.3 * noise(rows, width, seed=1)).to(dtype)
    out = poisoned(rows)
    cosine(a, b, out)
    assert_near(out, cosine_reference(a, b), torch.float32, 8.0)
    theirs = torch.nn.functional.cosine_similarity(a.float(), b.float(), dim=-1)
    assert_near(out, theirs, torch.float32, 8.0)


def test_cosine_by_hand() -> None:
    a = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [2.0, 0.0]], device=DEVICE)
    b = torch.tensor([[0.0, 3.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], device=DEVICE)
    assert cosine_rows(a, b).tolist() == pytest.approx([0.0, 2**-0.5, 0.0, -1.0])


def test_no_rows() -> None:
    assert top2_margin(noise(0, 10)).shape == (0,)
    assert cosine_rows(noise(0, 10), noise(0, 10)).shape == (0,)


def test_misfits_are_one_line() -> None:
    with pytest.raises(EngineError, match=r"^kernel top2: margins has shape \[3\], expected \[2\]"):
        top2(noise(2, 8), poisoned(3))
    with pytest.raises(EngineError, match=r"^kernel cosine: b has shape \[2, 7\], expected \[2, 8"):
        cosine(noise(2, 8), noise(2, 7), poisoned(2))
    with pytest.raises(EngineError, match="logits is not contiguous"):
        top2(noise(8, 2).T, poisoned(2))
