"""Layers in stages: the numbers of the whole model, whatever is cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from backends.checkpoints import models
from backends.engine.executors.base import StepRows
from backends.engine.executors.native import MOST_ROWS, NativeExecutor
from backends.engine.model.architecture import EngineError, read_architecture
from backends.engine.model.heads import ExitHead
from backends.engine.model.packed import load_packed
from backends.tetris.serving.layers.native import NativeStage
from harness.core.nouns import Model

ROOM = {"slots": 3, "max_len": 400, "threads": 1}
CUTS = (2, 5)
NONE = np.empty(0, np.int32)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def both(request: pytest.FixtureRequest) -> tuple[NativeExecutor, list[NativeStage]]:
    """The demo model whole, and in three stages."""
    directory = models.resolve(Model("demo"))
    shape, dtype = read_architecture(directory), getattr(torch, request.param)
    weights = load_packed(directory, shape, dtype)
    heads = [ExitHead(layer, weights.head, margin=True) for layer in CUTS]
    whole = NativeExecutor(weights, shape, heads, **ROOM)
    stages = []
    for head, (first, end) in zip((*heads, None), pairwise((0, *CUTS, 8)), strict=True):
        some = load_packed(directory, shape, dtype, range(first, end))
        stages.append(NativeStage(some, shape, head, **ROOM))
    return whole, stages


def through(stages: list[NativeStage], rows: StepRows) -> NativeStage:
    """The rows through all stages; the last one."""
    before = None
    for stage in stages:
        stage.run(rows, before, NONE)
        before = stage.left(rows)
    return stages[-1]


def last_of(slot: int, position: int) -> StepRows:
    return StepRows.of([(slot, position, 0)])


def test_prompts_and_tokens_are_the_whole_models_to_the_bit(
    both: tuple[NativeExecutor, list[NativeStage]],
) -> None:
    whole, stages = both
    prompts = [[(7 * i + 5) % 400 for i in range(MOST_ROWS + 44)], [3, 1, 4, 1, 5]]
    every = np.arange(2, dtype=np.int32)
    for slot, prompt in enumerate(prompts):
        whole.prefill(slot, prompt)
        last = through(stages, StepRows.span(slot, 0, prompt))
        at = last_of(slot, len(prompt) - 1)
        assert torch.equal(whole.logits(at), last.logits(at))
    rows = StepRows.of([(slot, len(prompt), 9 + slot) for slot, prompt in enumerate(prompts)])
    before = None
    for index, stage in enumerate(stages):
        assert stage.run(rows, before, every) == whole.advance(index, rows, every)
        before = stage.left(rows)


def test_positions_that_left_are_filled_as_in_one_process(
    both: tuple[NativeExecutor, list[NativeStage]],
) -> None:
    whole, stages = both
    prompt = list(range(11, 42))
    whole.prefill(2, prompt)
    through(stages, StepRows.span(2, 0, prompt))
    gone = StepRows.span(2, len(prompt), [5, 6, 7])
    for place in range(3):
        row = StepRows.span(2, len(prompt) + place, [5 + place])
        whole.advance(0, row, NONE)
        stages[0].run(row, None, NONE)
    whole.fill(1, gone)
    for stage in stages[1:]:
        stage.fill_from(gone, stages[0].left(gone))
    row, one = last_of(2, len(prompt) + 3), np.array([0], np.int32)
    before = None
    for index, stage in enumerate(stages):
        assert stage.run(row, before, one) == whole.advance(index, row, one)
        before = stage.left(row)


def test_rows_beyond_the_room_are_one_line(
    both: tuple[NativeExecutor, list[NativeStage]],
) -> None:
    stage = both[1][1]
    states = np.zeros((1, stage.architecture.width), np.float32)
    for act in (stage.fill_from, lambda rows, given: stage.run(rows, given, NONE)):
        with pytest.raises(EngineError, match=r"rows \[\[3, 0, 1\]\]"):
            act(StepRows.of([(3, 0, 1)]), states)
