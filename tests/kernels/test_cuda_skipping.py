"""The CUDA executor without some sublayers: the numbers of a model whose sublayers add nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from backends.engine.executors.base import StepRows
from backends.engine.executors.cuda import CudaExecutor
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
