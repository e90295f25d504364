"""Prompts on the CUDA executor: short ones in calls of many rows, long ones by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from backends.engine.executors import cuda
from backends.engine.executors.base import StepRows
from backends.engine.executors.cuda import CudaExecutor
from backends.engine.executors.cuda_calls import prompts
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import EngineError
from backends.engine.model.heads import ExitHead
from backends.engine.sublayers.sets import Sublayers
from tests.kernels.test_cuda_executor import IDS, random_weights, shape_of


def test_short_prompts_are_read_together_and_are_what_each_is_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bit for bit, whether a prompt ends in its first call or its third, and as torch has it; a
    long one among them has a pass of its own."""
    monkeypatch.setattr(prompts, "PROMPT_ROWS", 8)
    texts = [
        [IDS[(at + n) % len(IDS)] for n in range(count)] for at, count in enumerate((3, 20, 7))
    ]
    weights, shape = random_weights(shape_of("qwen3"), torch.float32), shape_of("qwen3")
    together, alone = (CudaExecutor(weights, shape, slots=4, max_len=40) for _ in range(2))
    torch_one = TorchExecutor(weights, shape, slots=4, max_len=40)
    long = [IDS[n % len(IDS)] for n in range(35)]
    given = [StepRows.span(slot, 0, text) for slot, text in enumerate((*texts, long))]
    together.read(StepRows.joined(given))
    for executor in (alone, torch_one):
        for slot, text in reversed(list(enumerate((*texts, long)))):
            executor.prefill(slot, text)
    for slot, text in enumerate((*texts, long)):
        end = StepRows.of([(slot, len(text) - 1, text[-1])])
        assert torch.equal(together.logits(end), alone.logits(end))
        assert torch.allclose(together.logits(end).cpu(), torch_one.logits(end), atol=1e-4)
    after = StepRows.of([(slot, len(text), 9) for slot, text in enumerate((*texts, long))])
    for executor in (together, alone, torch_one):
        executor.segment(0, after)
    assert torch.equal(together.logits(after), alone.logits(after))
    assert torch.allclose(together.logits(after).cpu(), torch_one.logits(after), atol=1e-4)
    with pytest.raises(EngineError, match="go beyond"):
        together.prefill(0, [5, 97])


def test_what_is_captured_late_leaves_every_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is executed once before its capture: of a fill and of a view without some sublayers
    that comes amid decoding, on whatever rows the last call had."""
    weights, shape = random_weights(shape_of("llama"), torch.float32), shape_of("llama")
    heads = [ExitHead(1, weights.head)]
    room: dict[str, Any] = {"slots": 2, "max_len": 40, "rows": 4}
    plain, late = (CudaExecutor(weights, shape, heads, **room) for _ in range(2))

    def first_run(runs: Sequence[Callable[[], None]], _: torch.device) -> list[Callable[[], None]]:
        for run in runs:
            run()
        return list(runs)

    for executor in (plain, late):
        executor.prefill(0, IDS)
        executor.prefill(1, IDS[:4])
        for index in range(2):
            executor.segment(index, StepRows.of([(0, len(IDS), 5), (1, 4, 6)]))
    monkeypatch.setattr(cuda, "INTERPRETED", False)
    monkeypatch.setattr(cuda, "capture", first_run)
    late._ready([partial(late._run_fill, 1)])
    late.skipping(Sublayers(attention=frozenset({1})))
    monkeypatch.undo()
    after = StepRows.of([(0, len(IDS) + 1, 7), (1, 5, 8)])
    for executor in (plain, late):
        for index in range(2):
            executor.segment(index, after)
    assert torch.equal(plain.logits(after), late.logits(after))
