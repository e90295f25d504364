"""The CUDA executor without some sublayers: the numbers of a model whose sublayers add nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from backends.engine.executors.base import StepRows
from backends.engine.executors.cuda import CudaExecutor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import EngineError
from backends.engine.model.heads import ExitHead
from backends.engine.model.weights import Weights
from backends.engine.sublayers.sets import Sublayers
from tests.kernels.test_cuda_executor import IDS, random_weights, shape_of

SETS = [
    Sublayers(frozenset({1}), frozenset({0, 2})),
    Sublayers(frozenset({0, 2}), frozenset({1, 2})),
    Sublayers(frozenset({0}), frozenset({0})),
]


def opened(weights: Weights, exits: tuple[int, ...] = ()) -> CudaExecutor:
    heads = [ExitHead(layer, weights.head) for layer in exits]
    return CudaExecutor(weights, shape_of("llama"), heads, slots=2, max_len=24, rows=4)


def without(weights: Weights, left_out: Sublayers) -> Weights:
    layers = [
        replace(
            layer,
            out=layer.out * (number not in left_out.attention),
            down=layer.down * (number not in left_out.mlp),
        )
        for number, layer in enumerate(weights.layers)
    ]
    return replace(weights, layers=tuple(layers))


@pytest.mark.parametrize(
    ("left_out", "exits"), [(SETS[0], ()), (SETS[1], ()), (SETS[2], (1,))], ids=str
)
def test_what_is_left_out_adds_nothing(left_out: Sublayers, exits: tuple[int, ...]) -> None:
    """The last set leaves out all that there is before the exit."""
    weights = random_weights(shape_of("llama"), torch.float32)
    other = opened(without(weights, left_out), exits)
    rows, asked = StepRows.span(1, 0, IDS[:6]), np.arange(6, dtype=np.int32)
    found = []
    for executor in (opened(weights, exits).skipping(left_out), other):
        for index in range(len(exits)):
            executor.segment(index, rows)
        found.append((executor.advance(len(exits), rows, asked)[0], executor.logits(rows)))
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])


def test_verification_writes_over_drafts() -> None:
    weights = random_weights(shape_of("llama"), torch.bfloat16)
    drafted, plain = opened(weights), opened(weights)
    view = drafted.skipping(SETS[0])
    for executor in (drafted, plain):
        executor.prefill(0, IDS[:4])
    view.segment(0, StepRows.span(0, 4, IDS[4:7]))
    rows, asked = StepRows.span(0, 4, IDS[4:8]), np.arange(4, dtype=np.int32)
    assert drafted.advance(0, rows, asked) == plain.advance(0, rows, asked)
    assert torch.equal(drafted.logits(rows), plain.logits(rows))
    with pytest.raises(EngineError, match="layer 3 is left out: expected 0 to 2"):
        drafted.skipping(Sublayers(mlp=frozenset({3})))


def test_layers_that_a_position_left_out_are_filled() -> None:
    """As the torch executor fills them, and every number as if each position were filled alone."""
    weights = random_weights(shape_of("llama"), torch.float32)
    heads = [ExitHead(1, weights.head)]
    room: dict[str, Any] = {"slots": 2, "max_len": 24, "rows": 4}
    found = []
    for kind, together in ((CudaExecutor, True), (CudaExecutor, False), (TorchExecutor, True)):
        executor = kind(weights, shape_of("llama"), heads, **room)
        late = []
        for slot, start in ((0, 3), (1, 4)):
            executor.prefill(slot, IDS[:start])
            rows = StepRows.span(slot, start, IDS[start : start + 3])
            executor.segment(0, rows)
            late += rows.table.T.tolist()
            if not together:
                for row in rows.table.T.tolist():
                    executor.fill(1, StepRows.of([row]))
        if together:
            executor.fill(1, StepRows.of(late))
        rows = StepRows.of([(0, 6, IDS[6]), (1, 7, IDS[7])])
        executor.segment(0, rows)
        executor.segment(1, rows)
        found.append(executor.logits(rows).cpu())
    assert torch.equal(found[0], found[1])
    assert torch.allclose(found[0], found[2], atol=1e-4)
    with pytest.raises(EngineError, match="boundary 2: expected 1 to 1"):
        executor.fill(2, rows)


def test_exit_heads_measure_margins_over_all_tokens_or_some() -> None:
    weights = random_weights(shape_of("llama"), torch.float32)
    kept = torch.arange(0, len(weights.head), 3)
    for head in (
        ExitHead(1, weights.head, margin=True),
        ExitHead(1, weights.head[kept], kept, margin=True),
    ):
        found = []
        for kind in (CudaExecutor, TorchExecutor):
            executor = kind(weights, shape_of("llama"), [head], slots=2, max_len=24, rows=4)
            executor.prefill(0, IDS[:3])
            rows = StepRows.span(0, 3, IDS[3:9])
            tokens, sure = executor.advance(0, rows, np.arange(6, dtype=np.int32))
            logits = executor.logits(rows, 0).cpu()
            best = logits.softmax(-1).topk(2).values
            assert torch.allclose(torch.tensor(sure), best[:, 0] - best[:, 1], atol=1e-6)
            found.append((tokens, logits))
        assert found[0][0] == found[1][0]
        assert torch.allclose(found[0][1], found[1][1], atol=1e-4)
