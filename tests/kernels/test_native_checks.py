"""The C++ confidence measures of early exit against the references in torch."""

from __future__ import annotations

import math

import pytest
import torch

from backends.kernels import exit_confidence
from backends.kernels.cpu import native_checks

pytestmark = pytest.mark.skipif(not native_checks.available(), reason="no C++ compiler here")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("rows", "size"), [(1, 2), (3, 17), (5, 1280), (2, 1283), (16, 32003)])
def test_measures_equal_the_references(rows: int, size: int, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(rows * size)
    a, b = (torch.randn(rows, size, generator=random).to(dtype) for _ in range(2))
    weight = torch.randn(size, generator=random) / math.sqrt(size)
    logits = a * 4
    torch.testing.assert_close(
        native_checks.top2_margin(logits), exit_confidence.top2_reference(logits)[0]
    )
    torch.testing.assert_close(
        native_checks.cosine_rows(a, b), exit_confidence.cosine_reference(a, b)
    )
    torch.testing.assert_close(
        native_checks.linear_probability(a, weight, 0.3),
        torch.sigmoid(torch.mv(a.float(), weight) + 0.3),
        rtol=1e-5,
        atol=1e-5,
    )


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    logits = torch.randn(7, 1283, generator=torch.Generator().manual_seed(1)).bfloat16()
    together = native_checks.top2_margin(logits)
    alone = torch.cat([native_checks.top2_margin(row[None]) for row in logits])
    assert torch.equal(together, alone)


def test_a_slice_of_wider_rows_is_read_as_a_slice() -> None:
    whole = torch.randn(4, 64, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(
        native_checks.cosine_rows(whole[:, :30], whole[:, 30:60]),
        exit_confidence.cosine_reference(whole[:, :30], whole[:, 30:60]),
    )


def test_ties_masked_tokens_and_what_is_no_number() -> None:
    nan, inf = math.nan, math.inf
    logits = torch.tensor(
        [[1, nan, 2], [inf, 1, 0], [1, -inf, 2], [-inf, -inf, 0], [3, 3, 1], [-inf, -inf, nan]]
    )
    found = native_checks.top2_margin(logits).tolist()
    assert math.isnan(found[0])
    assert math.isnan(found[1])
    assert math.isnan(found[5])
    assert found[2:5] == pytest.approx([math.tanh(0.5), 1.0, 0.0])


def test_states_of_zeros_have_cosine_0() -> None:
    zeros, ones = torch.zeros(1, 40), torch.ones(1, 40)
    assert native_checks.cosine_rows(zeros, ones).item() == 0.0
    assert native_checks.cosine_rows(zeros, zeros).item() == 0.0


def test_what_would_be_read_beyond_its_end_is_refused() -> None:
    row = torch.ones(1, 64)
    for other in (torch.ones(1, 64, dtype=torch.bfloat16), torch.ones(1, 32)):
        with pytest.raises(AssertionError):
            native_checks.cosine_rows(row, other)
    for weight in (torch.ones(64, dtype=torch.bfloat16), torch.ones(32)):
        with pytest.raises(AssertionError):
            native_checks.linear_probability(row, weight, 0.0)
