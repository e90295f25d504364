"""Layers in stages on CUDA: the numbers and the text of the whole model, whatever is cut."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backends import open_backend, settings
from backends.engine.executors.base import StepRows
from backends.engine.executors.cuda import CudaExecutor
from backends.engine.executors.cuda_calls import prompts
from backends.engine.model.heads import ExitHead
from backends.kernels.triton_runtime import INTERPRETED
from backends.own.backend import Loaded
from backends.tetris.serving import processes
from backends.tetris.serving.backend import Tetris
from backends.tetris.serving.layers.cuda import CudaStage
from harness.core.backend import Backend
from harness.core.nouns import Model, Request, Sampling
from tests.kernels.test_cuda_executor import IDS, make, random_weights, shape_of
from tests.support.engine.checkpoints import write_checkpoint
from tests.support.engine.kernel_cases import noise
from tests.support.tetris.stages_here import StagesHere

NONE = np.empty(0, np.int32)
ROOM: dict[str, Any] = {"slots": 3, "max_len": 60, "rows": 4}


def cut(kind: str, dtype: torch.dtype) -> tuple[CudaExecutor, list[CudaStage]]:
    """A model whole, with exits after its first two layers, and in three stages."""
    shape, weights = shape_of(kind), random_weights(shape_of(kind), dtype)
    trained = (weights.head + 0.1 * noise(97, 48, seed=8)).to(dtype)
    heads = [ExitHead(1, trained), ExitHead(2, weights.head, margin=True)]
    stages = [
        CudaStage(
            replace(weights, layers=weights.layers[first:end]),
            shape,
            head,
            is_first=first == 0,
            **ROOM,
        )
        for head, (first, end) in zip((*heads, None), pairwise((0, 1, 2, 3)), strict=True)
    ]
    return CudaExecutor(weights, shape, heads, **ROOM), stages


def through(stages: list[CudaStage], rows: StepRows) -> tuple[list[int], list[float]]:
    """Whole prompts through all stages; what follows each."""
    ends = np.flatnonzero(np.diff(rows.slots, append=-1)).astype(np.int32)
    states = None
    for stage in stages[:-1]:
        stage.run(rows, states, NONE, is_prompt=True)
        states = stage.left(rows)
    return stages[-1].run(rows, states, ends, is_prompt=True)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("qwen3", torch.bfloat16), ("llama", torch.float16), ("qwen2", None)]
)
def test_prompts_tokens_and_fills_are_the_whole_models_to_the_bit(
    kind: str, dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two prompts in calls of their own or shared ones, one longer than these take."""
    monkeypatch.setattr(prompts, "PROMPT_ROWS", 8)
    whole, stages = cut(kind, dtype or torch.float32)
    texts = [[IDS[(at + n) % 9] for n in range(count)] for at, count in enumerate((3, 20, 45))]
    assert stages[0]._prompts.longest == 32
    read = StepRows.joined([StepRows.span(slot, 0, text) for slot, text in enumerate(texts)])
    whole.read(read)
    found, _ = through(stages, read)
    ends = StepRows.of([(slot, len(text) - 1, text[-1]) for slot, text in enumerate(texts)])
    assert found == whole.greedy(ends)
    assert torch.equal(stages[-1].logits(ends), whole.logits(ends))

    def step(rows: StepRows) -> None:
        every, states = np.arange(len(rows), dtype=np.int32), None
        for index, stage in enumerate(stages):
            assert stage.run(rows, states, every) == whole.advance(index, rows, every)
            assert torch.equal(stage.logits(rows), whole.logits(rows, index))
            states = stage.left(rows)

    def at(slot: int, place: int, token: int) -> tuple[int, int, int]:
        return slot, len(texts[slot]) + place, token

    step(StepRows.of([at(slot, 0, 9 + slot) for slot in range(3)]))
    gone = StepRows.of([at(1, 1, 4), at(1, 2, 5), at(2, 1, 6)])
    for row in gone.table.T.tolist():
        one = StepRows.of([row])
        assert stages[0].run(one, None, NONE) == whole.advance(0, one, NONE) == ([], [])
    whole.fill(1, gone)
    for stage in stages[1:]:
        stage.fill_from(gone, stages[0].left(gone))
    step(StepRows.of([at(0, 1, 7), at(1, 3, 8), at(2, 2, 9)]))


def test_more_rows_than_a_call_has_and_the_first_ones_long_ago() -> None:
    """As a stage that is built again gets them."""
    whole, _, _ = make()
    _, [first, second, _] = cut("llama", torch.float32)
    rows = StepRows.span(1, 0, [IDS[n % 9] for n in range(30)])
    first.run(rows, None, NONE, is_prompt=True)
    again = StepRows.span(1, 3, rows.tokens[3:].tolist())
    before = first.left(again)
    first.run(again, None, NONE)
    assert np.allclose(first.left(again), before, atol=1e-4)
    assert not np.array_equal(first.left(again)[0], first.left(again)[1])
    second.run(rows, first.left(rows), NONE, is_prompt=True)
    assert np.isfinite(second.left(rows)).all()
    whole.close()


def texts(backend: Backend, deaths: dict[int, int]) -> dict[str, list[int]]:
    """Of three requests, one of them sampled; stages die when so many tokens have come."""
    lengths = (3, 9, 4)
    asked = [
        Request(str(n), tuple((5 * n + 7 * k) % 131 for k in range(length)), 3)
        for n, length in enumerate(lengths)
    ]
    asked[1] = replace(asked[1], sampling=Sampling(temperature=0.9, top_p=0.9, seed=3))
    for one in asked:
        backend.submit(replace(one, ignore_eos=True))
    found: dict[str, list[int]] = {one.id: [] for one in asked}
    ended = 0
    while ended < len(asked):
        for commit in backend.poll():
            assert commit.error is None
            found[commit.request_id] += commit.token_ids
            ended += commit.finished is not None
        for tokens in [n for n in deaths if n <= sum(map(len, found.values()))]:
            vars(backend)["_executor"].dying.add(deaths.pop(tokens))
    return found


@pytest.mark.parametrize(
    ("name", "exits", "replicas"),
    [
        ("own-early-exit", {"measure": "softmax", "thresholds": [0.05, 0.1]}, None),
        ("own-early-exit", {"measure": "state", "threshold": 0.6}, [2, 1, 1]),
        ("autoregressive", {"thresholds": [0.05, 0.1], "verify": True}, [2, 1, 1]),
    ],
)
def test_the_text_is_that_of_one_process(
    name: str,
    exits: dict[str, Any],
    replicas: list[int] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of stages that die too. Whoever is interpreted stands on the CPU."""
    write_checkpoint(tmp_path, "llama")
    model = Model(str(tmp_path), dtype="bfloat16")
    room, exits = {"max_model_len": 16, "max_num_seqs": 2}, {"layers": [1, 2], **exits}
    monkeypatch.setattr(processes, "StageProcesses", StagesHere)
    monkeypatch.setattr("backends.tetris.serving.backend.device", lambda: "cuda")
    if INTERPRETED:
        monkeypatch.setattr(Loaded, "_kernels", lambda self, asked: "triton")
        monkeypatch.setattr("backends.engine.executors.cuda_calls.layers.FEWEST_ROWS", 2)
    # ready rows are chosen by costs, which take the interpreter long to measure
    of_one = room if name == "autoregressive" else {**room, **exits, "batching": "lockstep"}
    alone = open_backend(name, tmp_path, model, of_one)
    expected = texts(alone, {})
    alone.close()
    stages = {"stages": 3, "prefill_tokens": 16, "replicas": replicas}
    piped = Tetris.open(tmp_path, model, settings("tetris", {**room, **exits, **stages}))
    assert piped.info.options["kernels"] == "triton"
    assert texts(piped, {2: 1, 4: 0, 6: 2}) == expected
    assert not vars(piped)["_executor"].dying
    piped.close()
