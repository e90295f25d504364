"""RoPE with cache write against its reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.kernels.rope_cache import rope_cache, rope_cache_reference
from tests.support.engine.kernel_cases import DEVICE, DTYPES, assert_near, integers, noise, poisoned

SLOTS, MAX_LEN = 3, 20


def angles(head_dim: int) -> tuple[Tensor, Tensor]:
    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2, device=DEVICE) / head_dim)
    table = torch.arange(MAX_LEN, device=DEVICE)[:, None] * frequencies[None, :]
    return table.cos(), table.sin()


def extras(kind: str, columns: int, head_dim: int, dtype: torch.dtype) -> dict[str, Any]:
    norms = {"q_norm": noise(head_dim, seed=7), "k_norm": noise(head_dim, seed=8), "epsilon": 1e-6}
    bias = {"bias": noise(columns, dtype=dtype, seed=9)}
    kinds: dict[str, dict[str, Any]] = {"llama": {}, "qwen2": bias, "qwen3": norms}
    return kinds[kind]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(4, 2, 64), (3, 1, 80), (2, 2, 96), (5, 5, 6)]
)
def test_against_the_reference(
    heads: int, kv_heads: int, head_dim: int, kind: str, dtype: torch.dtype
) -> None:
    columns = (heads + 2 * kv_heads) * head_dim
    qkv, (cosine, sine) = noise(4, columns, dtype=dtype), angles(head_dim)
    slots, positions = integers([1, 1, 0, 2]), integers([3, 4, 0, MAX_LEN - 1])
    options = extras(kind, columns, head_dim, dtype)
    shape = (SLOTS, kv_heads, MAX_LEN, head_dim)
    keys, values = poisoned(*shape, dtype=dtype), poisoned(*shape, dtype=dtype)
    keys_too, values_too = keys.clone(), values.clone()
    query = poisoned(4, heads, head_dim, dtype=dtype)
    rope_cache(qkv, cosine, sine, slots, positions, keys, values, query, **options)
    expected = rope_cache_reference(
        qkv, cosine, sine, slots, positions, keys_too, values_too, **options
    )
    assert_near(query, expected, dtype)
    for got, wanted in ((keys, keys_too), (values, values_too)):
        assert torch.equal(got.isnan(), wanted.isnan()), "other cache rows than the named ones"
        assert_near(
            got[slots.long(), :, positions.long()], wanted[slots.long(), :, positions.long()], dtype
        )


def test_positions_turn_the_pairs() -> None:
    """By hand: at position 1 a pair (1, 0) of frequency 1 becomes (cos 1, sin 1)."""
    qkv = torch.zeros(1, 3 * 2, device=DEVICE)
    qkv[0, 0] = qkv[0, 2] = qkv[0, 4] = 1.0
    keys, values, query = poisoned(1, 1, MAX_LEN, 2), poisoned(1, 1, MAX_LEN, 2), poisoned(1, 1, 2)
    rope_cache(qkv, *angles(2), integers([0]), integers([1]), keys, values, query)
    turned = torch.tensor([0.540302306, 0.841470985], device=DEVICE)
    assert torch.allclose(query[0, 0], turned)
    assert torch.allclose(keys[0, 0, 1], turned)
    assert values[0, 0, 1].tolist() == [1.0, 0.0]


def test_a_row_is_bitwise_its_own() -> None:
    qkv, norms = noise(8, 8 * 64, dtype=torch.bfloat16), extras("qwen3", 0, 64, torch.float32)
    qkv[:3] = float("nan")

    def run(rows: slice) -> tuple[Tensor, Tensor]:
        part = qkv[rows].contiguous()
        keys, values = (poisoned(SLOTS, 2, MAX_LEN, 64, dtype=qkv.dtype) for _ in range(2))
        query = poisoned(len(part), 4, 64, dtype=qkv.dtype)
        slots, positions = integers([2] * len(part)), integers(list(range(8))[rows])
        rope_cache(part, *angles(64), slots, positions, keys, values, query, **norms)
        return query, keys[2, :, 5]

    together, alone = run(slice(0, 8)), run(slice(5, 6))
    assert torch.equal(together[0][5:6], alone[0])
    assert torch.equal(together[1], alone[1])


def test_misfits_are_one_line() -> None:
    keys = noise(1, 1, MAX_LEN + 1, 64)
    arguments = (*angles(64), integers([0]), integers([0]), keys, keys, noise(1, 1, 64))
    with pytest.raises(EngineError, match=r"^kernel rope_cache: expected .* 21 rows of angles"):
        rope_cache(noise(1, 3 * 64), *arguments)
