"""Processes that compute the shards' gradients side by side, each on one core.

On a machine that is busy with other work this is several times as fast as threads: operators split
over cores wait for the slowest core, and threads wait for each other in the memory allocator.
"""

import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch import multiprocessing as processes

from backends.training.rows.batches import Example
from backends.training.small_models.llama import Llama
from backends.training.small_models.objective import Losses, shard_gradients
from harness.core.processes.gone import GONE, told_if_gone

KILLED = (
    "a training process was killed or failed, perhaps for lack of memory (--threads 1 does without "
    "them); what was learnt is kept, and the same command goes on from there"
)


class ShardProcesses:
    """One process per shard; parameters and gradients lie in shared memory."""

    def __init__(
        self, model: Llama, shards: int, dtype: torch.dtype, teacher: Llama | None = None
    ) -> None:
        model.share_memory()
        if teacher is not None:
            teacher.share_memory()
        context = processes.get_context("spawn")
        self._buffers = [[_shared_like(p) for p in model.parameters()] for _ in range(shards)]
        self._pipes, self._processes = [], []
        for buffer in self._buffers:
            ours, theirs = context.Pipe()
            arguments = (model, teacher, buffer, theirs, dtype)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            with told_if_gone(KILLED):
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def gradients(
        self, shards: Sequence[list[Example]], prompt_weight: float
    ) -> list[tuple[list[Tensor], Losses]]:
        """Return each shard's gradients and losses; the tensors are overwritten by the next call.

        Raises:
            UserError: when a process has died; no parameter has changed.
        """
        with told_if_gone(KILLED):
            for pipe, rows in zip(self._pipes, shards, strict=True):
                pipe.send(([(example.prompt, example.answer) for example in rows], prompt_weight))
            answers: list[tuple[list[float], int]] = [pipe.recv() for pipe in self._pipes]
        return [
            (buffer, Losses(torch.tensor(layers), count))
            for buffer, (layers, count) in zip(self._buffers, answers, strict=True)
        ]

    def close(self) -> None:
        """End the processes."""
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()
            process.join(timeout=10)


def _shared_like(parameter: Tensor) -> Tensor:
    storage = torch.zeros_like(parameter, requires_grad=False)
    shared: Tensor = storage.share_memory_()  # type: ignore[no-untyped-call]
    return shared


def _serve(
    model: Llama, teacher: Llama | None, buffer: list[Tensor], pipe: Any, dtype: torch.dtype
) -> None:
    """Answer requests until the other side closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a whole terminal: the other side closes then
    torch.set_num_threads(1)
    with suppress(*GONE):
        while True:
            rows, prompt_weight = pipe.recv()
            examples = [Example(prompt, answer) for prompt, answer in rows]
            tensors, losses = shard_gradients(model, examples, prompt_weight, dtype, teacher)
            for kept, computed in zip(buffer, tensors, strict=True):
                kept.copy_(computed)
            pipe.send((losses.layers.tolist(), losses.answers))
