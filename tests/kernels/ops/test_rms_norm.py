"""RMSNorm against its reference."""

from __future__ import annotations

import pytest
import torch

from backends.engine.model.architecture import EngineError
from backends.kernels.rms_norm import rms_norm, rms_norm_reference
from backends.kernels.triton_runtime import INTERPRETED
from tests.support.engine.kernel_cases import DTYPES, assert_near, integers, noise, poisoned


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 256), (3, 100), (8, 63), (2, 2048)])
def test_norm_alone(rows: int, width: int, dtype: torch.dtype) -> None:
    x, gain = noise(rows, width, dtype=dtype), noise(width, seed=1)
    out = poisoned(rows, width, dtype=dtype)
    rms_norm(x, rows=rows, gain=gain, epsilon=1e-5, out=out)
    assert_near(out, rms_norm_reference(x, gain, 1e-5)[1], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_residual_is_added_in_place(dtype: torch.dtype) -> None:
    residual, branch, gain = noise(5, 96, dtype=dtype), noise(5, 96, dtype=dtype, seed=1), noise(96)
    summed, normed = rms_norm_reference(residual, gain, 1e-6, add=branch)
    out = poisoned(5, 96, dtype=dtype)
    arguments = {"add": branch, "residual": residual, "out": out, "gain": gain}
    rms_norm(residual, rows=5, epsilon=1e-6, **arguments)
    if INTERPRETED and dtype == torch.bfloat16:
        assert_near(residual, summed, dtype)  # the interpreter truncates to bfloat16
    else:
        assert torch.equal(residual, summed)
    assert_near(out, normed, dtype)


def test_rows_come_from_a_table_and_go_to_another() -> None:
    """Rows that nobody names hold NaN and stay as they are."""
    table, gain = poisoned(7, 40), noise(40)
    source, target = integers([6, 2, 2]), integers([0, 5, 3])
    table[6], table[2] = noise(40, seed=3), noise(40, seed=4)
    branch, out, ring = noise(3, 40, seed=5), poisoned(3, 40), poisoned(6, 40)
    places = {"source_rows": source, "residual": ring, "residual_rows": target}
    rms_norm(table, rows=3, gain=gain, epsilon=1e-6, out=out, add=branch, **places)
    summed, normed = rms_norm_reference(table, gain, 1e-6, source_rows=source, add=branch)
    assert torch.equal(ring[[0, 5, 3]], summed)
    assert ring[[1, 2, 4]].isnan().all()
    assert_near(out, normed, torch.float32)


def test_a_row_is_bitwise_its_own() -> None:
    x, gain = noise(8, 200, dtype=torch.bfloat16), noise(200)
    together, alone = poisoned(8, 200, dtype=torch.bfloat16), poisoned(1, 200, dtype=torch.bfloat16)
    x[:5] = float("nan")
    rms_norm(x, rows=8, gain=gain, epsilon=1e-6, out=together)
    rms_norm(x[6:7], rows=1, gain=gain, epsilon=1e-6, out=alone)
    assert torch.equal(together[6:7], alone)


def test_misfits_are_one_line() -> None:
    with pytest.raises(EngineError, match=r"^kernel rms_norm: gain has shape \[3\], expected \[4]"):
        rms_norm(noise(2, 4), rows=2, gain=noise(3), out=noise(2, 4))
    with pytest.raises(EngineError, match="out was given without gain"):
        rms_norm(noise(2, 4), rows=2, out=noise(2, 4))
    with pytest.raises(EngineError, match="add is not contiguous"):
        rms_norm(noise(2, 4), rows=2, add=noise(4, 2).T, residual=noise(2, 4))
