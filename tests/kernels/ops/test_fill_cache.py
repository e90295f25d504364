"""The fill of all remaining layers' caches against its reference and by hand; vLLM's own calls are
in cuda_only/test_cuda_fill.py."""

from __future__ import annotations

import pytest
import torch

from backends.engine.model.architecture import EngineError
from backends.kernels.fill_cache import fill_cache, fill_cache_reference, prepare
from tests.support.engine.kernel_cases import DEVICE, DTYPES, integers, noise
from tests.support.engine.paged import (
    BLOCKS,
    POSITIONS,
    angles,
    assert_same,
    layer_cache,
    layer_caches,
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["heads together", "blocks first", "unaligned"])
@pytest.mark.parametrize(
    ("block_size", "kv_heads", "head_dim"), [(16, 2, 64), (8, 3, 80), (3, 1, 6), (32, 5, 2)]
)
def test_against_the_reference(
    block_size: int, kv_heads: int, head_dim: int, layout: str, dtype: torch.dtype
) -> None:
    """Three of four layers, rows out of order, one of them padded, and rows behind the slots."""
    sizes = (4, layout, block_size, kv_heads, head_dim, dtype)
    got, wanted = layer_caches(*sizes), layer_caches(*sizes)
    kv = noise(6, 2 * 3 * kv_heads * head_dim, dtype=dtype)
    kv[3], kv[5] = float("nan"), float("nan")
    last = BLOCKS * block_size - 1
    slots = torch.tensor([last, 0, block_size, -1, 2 * block_size + 1], device=DEVICE)
    arguments = (kv, integers([3, 0, POSITIONS - 1, 7, 11, -9]).long(), angles(head_dim), slots)
    fill_cache(*arguments, got)
    fill_cache_reference(*arguments, wanted)
    assert_same(got, wanted, dtype)
    assert got.keys[0].isnan().all(), "the layer that ran"
    assert got.values[0].isnan().all(), "the layer that ran"
    for keys, values in zip(got.keys[1:], got.values[1:], strict=True):
        assert (~keys.isnan()).any(-1).any(-1).sum() == 4
        assert (~values.isnan()).any(-1).any(-1).sum() == 4


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_each_layer_gets_its_own_columns(layers: int) -> None:
    """At position 0 nothing turns: the columns come back as they are, K before V."""
    caches = layer_caches(5, "heads together", 4, 2, 4, torch.float32)
    kv = torch.arange(2 * layers * 8.0, device=DEVICE)[None]
    fill_cache(kv, integers([0]), angles(4), integers([6]), caches)
    for index in range(layers):
        layer = 5 - layers + index
        start = 16 * index
        assert caches.keys[layer][1, 2].flatten().tolist() == kv[0, start : start + 8].tolist()
        start += 8
        assert caches.values[layer][1, 2].flatten().tolist() == kv[0, start : start + 8].tolist()


def test_positions_turn_the_keys_alone() -> None:
    """By hand: at position 1 a pair (1, 0) of frequency 1 becomes (cos 1, sin 1)."""
    caches = layer_caches(1, "blocks first", 2, 1, 2, torch.float32)
    kv = torch.tensor([[1.0, 0.0, 1.0, 0.0]], device=DEVICE)
    fill_cache(kv, integers([1]), angles(2), integers([0]), caches)
    turned = torch.tensor([0.540302306, 0.841470985], device=DEVICE)
    assert torch.allclose(caches.keys[0][0, 0, 0], turned)
    assert caches.values[0][0, 0, 0].tolist() == [1.0, 0.0]


def test_angles_in_the_models_dtype() -> None:
    """vLLM keeps them rounded; they are widened, not the product narrowed."""
    sizes = (2, "heads together", 16, 2, 32, torch.float32)
    got, wanted = layer_caches(*sizes), layer_caches(*sizes)
    table = angles(32, torch.bfloat16)
    kv, where = noise(2, 2 * 2 * 2 * 32), integers([5, 20])
    fill_cache(kv, where, table, where, got)
    fill_cache_reference(kv, where, table.float(), where, wanted)
    assert_same(got, wanted, torch.float32)


def test_no_rows_and_padded_rows_write_nothing() -> None:
    caches = layer_caches(2, "heads together", 4, 1, 8, torch.float32)
    fill_cache(noise(3, 16), integers([0, 0, 0]), angles(8), integers([]), caches)
    fill_cache(noise(3, 16), integers([0, 0, 0]), angles(8), integers([-1, -1, -1]), caches)
    assert all(cache.isnan().all() for cache in (*caches.keys, *caches.values))


def test_a_row_is_bitwise_its_own() -> None:
    sizes = (3, "heads together", 16, 2, 64, torch.bfloat16)
    together, alone = layer_caches(*sizes), layer_caches(*sizes)
    kv = noise(4, 2 * 3 * 2 * 64, dtype=torch.bfloat16)
    kv[:3] = float("nan")
    fill_cache(kv, integers([1, 2, 3, 4]), angles(64), integers([17, 18, 19, 40]), together)
    fill_cache(kv[3:], integers([4]), angles(64), integers([40]), alone)
    for mine, other in ((together.keys, alone.keys), (together.values, alone.values)):
        for one, two in zip(mine, other, strict=True):
            assert torch.equal(one[2, 8], two[2, 8])


def test_misfits_are_one_line() -> None:
    caches = layer_caches(2, "heads together", 4, 2, 8, torch.float32)
    row = integers([0])
    with pytest.raises(EngineError, match=r"^kernel fill_cache: kv is torch\.float32 with 96 col"):
        fill_cache(noise(1, 96), row, angles(8), row, caches)
    with pytest.raises(EngineError, match=r"expected torch\.float32 and 32 for each of 1 to 2 lay"):
        fill_cache(noise(1, 32, dtype=torch.float16), row, angles(8), row, caches)
    with pytest.raises(EngineError, match="2 slots of heads of 8, but 1 rows"):
        fill_cache(noise(1, 32), row, angles(8), integers([0, 1]), caches)
    with pytest.raises(EngineError, match="1 positions and 4 angles"):
        fill_cache(noise(1, 32), row, angles(4), row, caches)
    with pytest.raises(EngineError, match="kv is not contiguous"):
        fill_cache(noise(32, 2).T, row, angles(8), row, caches)


def test_caches_that_differ_are_refused() -> None:
    keys, values = layer_cache("heads together", 4, 2, 8, torch.float32)
    other, _ = layer_cache("blocks first", 4, 2, 8, torch.float32)
    with pytest.raises(EngineError, match=r"^kernel fill_cache: keys of layer 1 are \(\[5, 4, 2,"):
        prepare([keys, other], [values, values])
    with pytest.raises(EngineError, match="1 key caches, 0 value caches"):
        prepare([keys], [])
    with pytest.raises(EngineError, match=r"expected caches .* got shape"):
        prepare([keys[..., ::2]], [values[..., ::2]])
