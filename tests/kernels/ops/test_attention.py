"""Attention over the cache against its reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.kernels.attention import (
    SPLIT,
    AttentionScratch,
    Branches,
    attention,
    attention_reference,
)
from tests.support.engine.kernel_cases import DEVICE, DTYPES, assert_near, integers, noise, poisoned


def cache(
    slots: Tensor, positions: Tensor, kv_heads: int, max_len: int, head_dim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Keys and values [4, ...]; whatever no row may read is NaN."""
    shape = (4, kv_heads, max_len, head_dim)
    keys, values = noise(*shape, dtype=dtype, seed=1), noise(*shape, dtype=dtype, seed=2)
    for slot in range(4):
        lengths = [
            p + 1 for s, p in zip(slots.tolist(), positions.tolist(), strict=True) if s == slot
        ]
        keys[slot, :, max(lengths, default=0) :] = float("nan")
        values[slot, :, max(lengths, default=0) :] = float("nan")
    return keys, values


def run(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    slots: Tensor,
    positions: Tensor,
    branches: Branches | None = None,
) -> Tensor:
    rows, heads, head_dim = query.shape
    scratch = AttentionScratch.allocate(rows, heads, head_dim, keys.shape[2], DEVICE)
    for tensor in (scratch.partial, scratch.maxima, scratch.sums):
        tensor.fill_(float("nan"))
    out = poisoned(rows, heads, head_dim, dtype=query.dtype)
    attention(query, keys, values, slots, positions, scratch, out, branches=branches)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(4, 1, 64), (6, 2, 80), (3, 3, 96), (2, 1, 128), (2, 2, 20)]
)
def test_against_the_reference(
    heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    slots, positions = integers([2, 2, 0]), integers([SPLIT + 6, SPLIT + 7, 0])
    keys, values = cache(slots, positions, kv_heads, SPLIT + 30, head_dim, dtype)
    query = noise(3, heads, head_dim, dtype=dtype)
    got = run(query, keys, values, slots, positions)
    assert_near(got, attention_reference(query, keys, values, slots, positions), dtype, 4.0)


@pytest.mark.parametrize("position", [0, 1, SPLIT - 1, SPLIT, 17 * SPLIT - 1, 17 * SPLIT + 3])
def test_lengths_around_a_split(position: int) -> None:
    slots, positions = integers([3]), integers([position])
    keys, values = cache(slots, positions, 1, 18 * SPLIT, 16, torch.float32)
    query = noise(1, 2, 16)
    got = run(query, keys, values, slots, positions)
    expected = attention_reference(query, keys, values, slots, positions)
    assert_near(got, expected, torch.float32, 8.0)


def test_scores_far_apart_between_splits() -> None:
    """The last split's maximum dwarfs the first's: rescaling must not overflow."""
    slots, positions = integers([0]), integers([2 * SPLIT])
    keys, values = cache(slots, positions, 1, 2 * SPLIT + 1, 16, torch.float32)
    keys[0, 0, 2 * SPLIT] *= 1e4
    query = keys[0, :, 2 * SPLIT].clone()[None]
    got = run(query, keys, values, slots, positions)
    assert_near(got[0], values[0, :, 2 * SPLIT], torch.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_bitwise_its_own(dtype: torch.dtype) -> None:
    """Alone, among others, elsewhere, beside NaN, and in a cache with longer neighbours."""
    slots = integers([0, 0, 1, 2, 2, 2, 3, 3])
    positions = integers([4, 5, SPLIT + 50, 9, 10, 11, 0, 1])
    keys, values = cache(slots, positions, 2, SPLIT + 64, 64, dtype)
    query = noise(8, 4, 64, dtype=dtype)
    query[:2] = float("nan")
    together = run(query, keys, values, slots, positions)
    for row in (2, 5):
        one = slice(row, row + 1)
        alone = run(query[one], keys, values, slots[one], positions[one])
        assert torch.equal(alone, together[one])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_trees_are_bitwise_rows_of_the_cache(dtype: torch.dtype) -> None:
    """Ways that end aside, before, at and behind the border of a split, of one and of many levels;
    the cache holds NaN where they begin."""
    heads, kv_heads, head_dim, max_len = 4, 2, 64, SPLIT + 80
    slots = integers([0, 1, 2, 3])
    starts, positions = (3, SPLIT - 2, SPLIT + 1, 0), (3, SPLIT + 70, SPLIT + 2, 69)
    keys, values = cache(slots, integers(positions), kv_heads, max_len, head_dim, dtype)
    query = noise(4, heads, head_dim, dtype=dtype)
    expected = run(query, keys, values, slots, integers(positions))
    aside = [poisoned(1, kv_heads, 400, head_dim, dtype=dtype) for _ in range(2)]
    ways = poisoned(80, 4, dtype=torch.int32)
    places = iter(torch.randperm(400, generator=torch.Generator().manual_seed(1)).tolist())
    for row, (start, position) in enumerate(zip(starts, positions, strict=True)):
        for level in range(position - start + 1):
            ways[level, row] = place = next(places)
            for store, held in zip(aside, (keys, values), strict=True):
                store[0, :, place] = held[row, :, start + level]
        for held in (keys, values):
            held[row, :, start:] = float("nan")
    branches = Branches(aside[0], aside[1], integers(starts), ways)
    got = run(query, keys, values, slots, integers(positions), branches)
    assert torch.equal(got, expected)


def test_misfits_are_one_line() -> None:
    where = (integers([0]), integers([0]))
    scratch = AttentionScratch.allocate(1, 3, 16, 8, DEVICE)
    keys, query = noise(1, 2, 8, 16), noise(1, 3, 16)
    with pytest.raises(EngineError, match=r"^kernel attention: 3 heads over 2 KV heads"):
        attention(query, keys, keys, *where, scratch, query)
    slots, query, keys = integers([0]), noise(1, 4, 16), noise(1, 2, 8, 16)
    scratch = AttentionScratch.allocate(1, 4, 16, 8, DEVICE)
    for aside, said in ((keys.half(), "not torch.float32"), (keys[..., :8], "expected")):
        branches = Branches(aside, aside, slots, slots[None])
        with pytest.raises(EngineError, match=rf"^kernel attention: .*{said}"):
            attention(query, keys, keys, slots, slots, scratch, query, branches=branches)
