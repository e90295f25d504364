"""SiLU-and-multiply against its reference and torch's own."""

from __future__ import annotations

import pytest
import torch

from backends.kernels.silu_mul import silu_mul, silu_mul_reference
from tests.support.engine.kernel_cases import DTYPES, assert_near, noise, poisoned


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 1024), (3, 683), (8, 1), (2, 2500)])
def test_against_the_reference(rows: int, width: int, dtype: torch.dtype) -> None:
    gate_up, out = noise(rows, 2 * width, dtype=dtype), poisoned(rows, width, dtype=dtype)
    silu_mul(gate_up, out)
    assert_near(out, silu_mul_reference(gate_up), dtype)


def test_the_reference_is_torchs_silu() -> None:
    gate_up = noise(4, 60)
    gate, up = gate_up.chunk(2, -1)
    assert_near(
        silu_mul_reference(gate_up), torch.nn.functional.silu(gate) * up, torch.float32, 4.0
    )


def test_gates_far_from_zero_neither_overflow_nor_vanish() -> None:
    gate_up = noise(1, 8)
    gate_up[0] = torch.tensor([-200.0, 200.0, -88.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    out = poisoned(1, 4)
    silu_mul(gate_up, out)
    assert out[0, 1] == 200.0
    assert out[0, [0, 2, 3]].abs().max() < 1e-30


def test_a_row_is_bitwise_its_own() -> None:
    gate_up, together = noise(8, 300), poisoned(8, 150)
    gate_up[0] = float("nan")
    silu_mul(gate_up, together)
    alone = poisoned(1, 150)
    silu_mul(gate_up[7:], alone)
    assert torch.equal(together[7:], alone)
