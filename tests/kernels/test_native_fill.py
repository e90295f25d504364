"""The C++ part of the fill against the same in torch."""

from __future__ import annotations

import pytest
import torch

from backends.kernels.cpu import native_checks
from backends.kernels.cpu.native_fill import arrange

pytestmark = pytest.mark.skipif(not native_checks.available(), reason="no C++ compiler here")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("rows", "layers", "kv_heads", "head_dim"), [(1, 1, 1, 2), (3, 5, 2, 64), (16, 2, 3, 20)]
)
def test_keys_are_rotated_values_copied_and_slots_moved_layer_by_layer(
    rows: int, layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(rows)
    size = kv_heads * head_dim
    both = torch.randn(rows, 2 * layers * size, generator=random).to(dtype)
    positions = torch.randint(0, 50, (rows,), generator=random)
    angles = torch.rand(50, head_dim // 2, generator=random) * 6
    slots = torch.randperm(100, generator=random)[:rows]
    slots[-1] = -1
    keys, values, places = arrange(
        both, positions, torch.cat([angles.cos(), angles.sin()], -1), slots,
        (layers, kv_heads, head_dim), 100,
    )  # fmt: skip
    given_keys, given_values = both.view(rows, layers, 2, kv_heads, head_dim).unbind(2)
    one, two = given_keys.float().chunk(2, -1)
    cosines, sines = (f(angles)[positions][:, None, None] for f in (torch.cos, torch.sin))
    turned = torch.cat([one * cosines - two * sines, two * cosines + one * sines], -1)
    torch.testing.assert_close(keys.view_as(turned), turned.to(dtype))
    assert torch.equal(values.view_as(given_values), given_values)
    expected = slots[:, None] + 100 * torch.arange(layers)
    expected[-1] = -1
    assert torch.equal(places, expected.flatten())
