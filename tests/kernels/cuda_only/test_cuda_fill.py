"""The fill of the caches beside vLLM's own calls, which run on CUDA only. Not part of the
interpreter's child process, where nobody would see that it is skipped."""

from __future__ import annotations

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("vLLM's cache kernels need CUDA", allow_module_level=True)

from backends.kernels.fill_cache import fill_cache
from tests.support.engine.kernel_cases import DEVICE, DTYPES, integers, noise
from tests.support.engine.paged import angles, assert_same, layer_caches


@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_against_vllms_own_calls(dtype: torch.dtype) -> None:
    ops = pytest.importorskip("vllm._custom_ops")
    sizes = (3, "heads together", 16, 8, 128, dtype)
    got, wanted = layer_caches(*sizes), layer_caches(*sizes)
    kv, slots = noise(7, 2 * 2 * 8 * 128, dtype=dtype), integers([3, 70, 4, -1, 16, 31, 0]).long()
    positions, table = integers([9, 1, 2, 3, 0, 39, 20]).long(), angles(128, dtype)
    fill_cache(kv, positions, table, slots, got)
    keys, values = (p.reshape(7, -1) for p in kv.view(7, 2, 2, -1).unbind(2))
    ops.rotary_embedding(positions, keys, None, 128, table, True)
    one = torch.ones(1, device=DEVICE)
    for index, layer in enumerate((1, 2)):
        ops.reshape_and_cache_flash(
            *(part.view(7, 2, 8, 128)[:, index] for part in (keys, values)),
            *(wanted.keys[layer], wanted.values[layer], slots, "auto", one, one),
        )
    assert_same(got, wanted, dtype)
