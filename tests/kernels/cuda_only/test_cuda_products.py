"""What the CUDA executor asks of cuBLAS: a row's numbers whatever else is in the call. Not part of
the interpreter's child process, where nobody would see that it is skipped."""

from __future__ import annotations

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("cuBLAS needs CUDA", allow_module_level=True)

from backends.engine.executors.cuda_calls.graph import _sums_in_float32
from tests.support.engine.kernel_cases import noise

PRODUCTS = {
    "8b": [(4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096)],
    "1b": [(2048, 3072), (2048, 2048), (2048, 16384), (8192, 2048)],
}
"""Width and outputs of a layer's products in Llama's shapes."""


@pytest.mark.parametrize("rows", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("shape", PRODUCTS)
def test_a_row_is_the_same_at_every_place_and_beside_anything(shape: str, rows: int) -> None:
    """Bit for bit: calls of 128 rows read prompts, several in one, wherever they fall."""
    for width, outputs in PRODUCTS[shape]:
        x = noise(rows, width, dtype=torch.bfloat16)
        matrix = noise(outputs, width, dtype=torch.bfloat16, seed=1) * width**-0.5
        with _sums_in_float32():
            plain = torch.mm(x, matrix.T)
            for step in (1, rows // 2, rows - 1):
                moved = torch.mm(x.roll(step, 0), matrix.T)
                assert torch.equal(moved, plain.roll(step, 0)), (width, outputs, step)
            alone = torch.zeros_like(x)
            alone[rows - 1] = x[0]
            assert torch.equal(torch.mm(alone, matrix.T)[rows - 1], plain[0]), (width, outputs)
