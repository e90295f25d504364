"""Prompts and hidden states, against transformers' models of the same weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from backends.engine.model import attention, forward
from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.attention import attend
from backends.engine.model.cache import KVCache
from backends.engine.model.forward import Rotary, final_logits, hidden_states, prefill
from backends.engine.model.weights import Weights
from tests.support.engine.checkpoints import SHAPES, CheckpointCase, reference_logits

LENGTH = 70


@pytest.fixture(scope="module", params=SHAPES)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> CheckpointCase:
    return CheckpointCase.write(tmp_path_factory.mktemp(request.param), request.param, LENGTH)


def run_prefill(
    weights: Weights, architecture: Architecture, ids: Tensor
) -> tuple[Tensor, KVCache]:
    cache = KVCache.allocate(architecture, 1, len(ids) + 3, weights.embedding.dtype)
    for tensor in (cache.keys, cache.values):
        tensor.fill_(torch.nan)
    rotary = Rotary.build(architecture, len(ids) + 3)
    return prefill(weights, architecture, ids, rotary, cache.keys[:, 0], cache.values[:, 0]), cache


def off(found: Tensor, truth: Tensor) -> float:
    """Root mean square error."""
    return (found - truth).square().mean().sqrt().item()


def test_the_frequencies_are_transformers_bits(case: CheckpointCase) -> None:
    theirs = case.model.model.rotary_emb
    assert case.architecture.inverse_frequencies == tuple(theirs.inv_freq.tolist())
    assert case.architecture.rope_factor == theirs.attention_scaling


def test_float32_agrees_with_transformers_to_rounding(case: CheckpointCase) -> None:
    weights = case.weights(torch.float32)
    states = hidden_states(
        weights, case.architecture, case.ids[None], range(case.architecture.layers + 1)
    )
    with torch.no_grad():
        theirs = case.model.model(case.ids[None], output_hidden_states=True).hidden_states
    for layer in range(case.architecture.layers):  # transformers' last one is behind the norm
        torch.testing.assert_close(states[layer], theirs[layer], atol=2e-5, rtol=1e-5)
    logits = final_logits(weights, states[case.architecture.layers])[0]
    torch.testing.assert_close(logits, case.truth, atol=2e-5, rtol=1e-5)
    last, _ = run_prefill(weights, case.architecture, case.ids)
    torch.testing.assert_close(final_logits(weights, last), case.truth[-1], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_16_bits_the_error_is_no_larger_than_transformers(
    case: CheckpointCase, dtype: torch.dtype
) -> None:
    weights = case.weights(dtype)
    top = case.architecture.layers
    hidden = hidden_states(weights, case.architecture, case.ids[None], [top])[top][0]
    assert hidden.dtype == dtype
    ours, theirs = (
        off(found, case.truth)
        for found in (
            final_logits(weights, hidden),
            reference_logits(copy.deepcopy(case.model).to(dtype), case.ids),
        )
    )
    assert ours <= 1.05 * theirs
    lasts = [
        run_prefill(weights, case.architecture, case.ids[:count])[0] for count in range(30, LENGTH)
    ]
    assert off(final_logits(weights, torch.stack(lasts)), case.truth[29:-1]) <= 1.05 * theirs


def test_a_prompt_fills_its_own_positions_of_the_cache(case: CheckpointCase) -> None:
    weights = case.weights(torch.float32)
    _, cache = run_prefill(weights, case.architecture, case.ids)
    with torch.no_grad():
        theirs = case.model(case.ids[None], use_cache=True).past_key_values
    for index in range(case.architecture.layers):
        for ours, reference in (
            (cache.keys[index, 0], theirs.layers[index].keys[0]),
            (cache.values[index, 0], theirs.layers[index].values[0]),
        ):
            torch.testing.assert_close(ours[:, :LENGTH], reference, atol=2e-5, rtol=1e-5)
            assert ours[:, LENGTH:].isnan().all()
    assert cache.keys[:, 1].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [1, 2, 33, LENGTH])
def test_a_prompt_gives_the_same_bits_every_time(
    case: CheckpointCase, dtype: torch.dtype, count: int
) -> None:
    weights = case.weights(dtype)
    first, cache = run_prefill(weights, case.architecture, case.ids[:count])
    run_prefill(weights, case.architecture, case.ids.flip(0))
    again, other = run_prefill(weights, case.architecture, case.ids[:count])
    assert torch.equal(first, again)
    assert torch.equal(cache.keys[:, 0, :, :count], other.keys[:, 0, :, :count])
    assert torch.equal(cache.values[:, 0, :, :count], other.values[:, 0, :, :count])


def test_rows_of_a_batch_equal_single_sequences(case: CheckpointCase) -> None:
    weights = case.weights(torch.float32)
    ids = torch.stack([case.ids, case.ids.flip(0)])
    together = hidden_states(weights, case.architecture, ids, [1])[1]
    for row, sequence in zip(together, ids, strict=True):
        alone = hidden_states(weights, case.architecture, sequence[None], [1])[1][0]
        torch.testing.assert_close(row, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [5, 8192])
def test_logits_are_not_rounded_to_16_bits(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, rows: int
) -> None:
    monkeypatch.setattr(forward, "HEAD_ROWS", rows)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(2, 3, 40, generator=generator).to(dtype)
    head = torch.randn(23, 40, generator=generator).to(dtype)
    found = forward.head_product(hidden, head)
    assert found.dtype == torch.float32
    exact = (hidden.double() @ head.double().T).float()
    torch.testing.assert_close(found, exact, atol=1e-5, rtol=1e-6)


def test_a_tap_that_is_no_layer(case: CheckpointCase) -> None:
    weights = case.weights(torch.float32)
    with pytest.raises(EngineError, match=r"taps: \[0, 9\]: expected numbers from 0 to"):
        hidden_states(weights, case.architecture, case.ids[None], [9, 0])


@pytest.mark.parametrize("scores", [1, 2000, 1 << 20])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "m", "n"), [(6, 2, 37, 37), (4, 4, 1, 50), (3, 1, 9, 40)]
)
def test_attention_in_parts_of_any_size(
    monkeypatch: pytest.MonkeyPatch, scores: int, heads: int, kv_heads: int, m: int, n: int
) -> None:
    monkeypatch.setitem(attention.SCORES, "cpu", scores)
    generator = torch.Generator().manual_seed(n)
    queries = torch.randn(2, heads, m, 12, generator=generator)
    keys, values = torch.randn(2, 2, kv_heads, n, 12, generator=generator)
    allowed = torch.ones(m, n, dtype=torch.bool).tril(n - m)
    expected = torch.nn.functional.scaled_dot_product_attention(
        queries, keys, values, attn_mask=allowed, enable_gqa=True
    )
    torch.testing.assert_close(attend(queries, keys, values), expected, atol=1e-6, rtol=1e-5)


def test_a_long_prompt_holds_few_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """All scores of 6,000 positions in 8 heads would be 1.1 GB in float32."""
    largest = 0
    allocate = torch.empty

    def empty(*shape: Any, **options: Any) -> Tensor:
        nonlocal largest
        tensor: Tensor = allocate(*shape, **options)
        largest = max(largest, tensor.nbytes)
        return tensor

    monkeypatch.setattr(torch, "empty", empty)
    queries = torch.zeros(1, 8, 6000, 2)
    attend(queries, queries, queries)
    assert 0 < largest <= 4 * max(attention.SCORES["cpu"], attention.FEWEST * 8 * 6000)
