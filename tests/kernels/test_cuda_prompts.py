"""Prompts on the CUDA executor: short ones in calls of many rows, long ones by themselves."""

from __future__ import annotations

import pytest
import torch

from backends.engine.executors import cuda
from backends.engine.executors.base import StepRows
from backends.engine.executors.cuda import CudaExecutor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import EngineError
from tests.kernels.test_cuda_executor import IDS, random_weights, shape_of


def test_short_prompts_are_read_together_and_are_what_each_is_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bit for bit, whether a prompt ends in its first call or its third, and as torch has it; a
    long one among them has a pass of its own."""
    monkeypatch.setattr(cuda, "PROMPT_ROWS", 8)
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
