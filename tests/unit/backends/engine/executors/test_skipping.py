"""Executors that leave sublayers out: the numbers of a model whose sublayers add nothing there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from backends.engine.executors.base import Executor, StepRows
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import EngineError
from backends.engine.sublayers.sets import NOTHING, Sublayers
from tests.support.engine.exit_streams import Kind, kinds
from tests.support.engine.random_models import SHAPES, RandomModel, random_model

ROOM: dict[str, Any] = {"slots": 2, "max_len": 64}
LEFT_OUT = Sublayers(frozenset({0, 2}), frozenset({1, 2}))
IDS = [5, 17, 3, 88, 41, 7, 7, 60, 2, 11, 30]


def opened(kind: Kind, model: RandomModel) -> Executor:
    threads = {"threads": 1} if kind is not TorchExecutor else {}
    executor: Executor = kind(model.weights, model.architecture, **ROOM, **threads)
    return executor


def without(model: RandomModel, left_out: Sublayers) -> RandomModel:
    """The same weights, but that some sublayers add zeros."""
    layers = []
    for number, layer in enumerate(model.weights.layers):
        if number in left_out.attention:
            layer = replace(layer, out=torch.zeros_like(layer.out))
        if number in left_out.mlp:
            layer = replace(layer, down=torch.zeros_like(layer.down))
        layers.append(layer)
    return RandomModel(model.architecture, replace(model.weights, layers=tuple(layers)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@kinds
@pytest.mark.parametrize("name", SHAPES)
def test_what_is_left_out_adds_nothing(name: str, kind: Kind, dtype: torch.dtype) -> None:
    model = random_model(name, dtype, agreement=1.0)
    view = opened(kind, model).skipping(LEFT_OUT)
    other = opened(kind, without(model, LEFT_OUT))
    found = []
    for executor in (view, other):
        first = StepRows.span(1, 0, IDS)
        every = np.arange(len(IDS), dtype=np.int32)
        tokens, sure = executor.advance(0, first, every)
        logits = executor.logits(first)
        last = StepRows.span(1, len(IDS), [tokens[-1]])
        most, nobody = np.array([9], np.int32), np.empty(0, np.int32)
        followed = executor.continued(last, every[:1], most, 0.0, nobody)
        found.append((tokens, sure, logits.tolist(), followed))
    assert found[0] == found[1]
    whole = opened(kind, model)
    whole.segment(0, StepRows.span(1, 0, IDS))
    assert not torch.equal(whole.logits(first), torch.tensor(found[0][2]))


def test_a_layer_that_is_left_out_is_not_written_to() -> None:
    model = random_model("llama")
    executor = TorchExecutor(model.weights, model.architecture, **ROOM)
    executor.prefill(0, IDS)
    before = executor._cache.keys[:, 0].clone(), executor._cache.values[:, 0].clone()
    executor.skipping(LEFT_OUT).segment(0, StepRows.span(0, 4, [1, 2, 3]))
    for held, then in zip((executor._cache.keys, executor._cache.values), before, strict=True):
        changed = {layer for layer in range(6) if not torch.equal(held[layer, 0], then[layer])}
        assert changed == {1, 3, 4, 5}


@kinds
def test_a_prompt_is_read_by_all_layers_and_verification_writes_over_drafts(kind: Kind) -> None:
    model = random_model("llama", torch.bfloat16)
    executor, plain = opened(kind, model), opened(kind, model)
    view = executor.skipping(LEFT_OUT)
    view.prefill(0, IDS)
    plain.prefill(0, IDS)
    here, there = np.arange(1, dtype=np.int32), StepRows.span(0, len(IDS), [9])
    nobody = np.empty(0, np.int32)
    view.continued(there, here, np.array([6], np.int32), 0.0, nobody)
    rows = StepRows.span(0, len(IDS), [9, 8, 7, 6, 5, 4])
    every = np.arange(len(rows), dtype=np.int32)
    assert executor.advance(0, rows, every) == plain.advance(0, rows, every)
    assert torch.equal(executor.logits(rows), plain.logits(rows))


@kinds
def test_a_watch_on_the_model_does_not_see_its_view(kind: Kind) -> None:
    executor = opened(kind, random_model("llama"))
    calls: list[str] = []
    segment = executor.segment
    executor.segment = lambda *a: (calls.append("segment"), segment(*a))[1]  # type: ignore[func-returns-value,method-assign]
    view = executor.skipping(NOTHING)
    view.segment(0, StepRows.span(0, 0, IDS))
    assert calls == []
    executor.segment(0, StepRows.span(0, 0, IDS))
    assert calls == ["segment"]


@kinds
def test_sets_that_the_model_has_not_got(kind: Kind) -> None:
    executor = opened(kind, random_model("llama"))
    with pytest.raises(EngineError, match="layer 6 is left out: expected 0 to 5"):
        executor.skipping(Sublayers(mlp=frozenset({2, 6})))
    with pytest.raises(EngineError, match="layer -1 is left out"):
        executor.skipping(Sublayers(attention=frozenset({-1})))
    every = frozenset(range(6))
    with pytest.raises(EngineError, match="all sublayers of 6 layers are left out"):
        executor.skipping(Sublayers(every, every))
