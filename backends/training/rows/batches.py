"""Training batches: prompt and answer ids of bundled train rows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from backends.training.rows.drills import drill_prompts
from backends.training.rows.tokenizer import END, PAD
from workloads.bundled import iter_rows
from workloads.prompts import encode_answer, encode_prompt

IGNORED = -100
"""Target of a position that is padding."""
POOL = 16
"""Batches that are drawn together, so that rows of like length can share a batch."""


DRILLS = "drills"
"""Name in a mix of the arithmetic drills, which are no workload."""


@dataclass(frozen=True)
class Batch:
    """Rows of one length: `ids` int64 (rows, time); `targets` holds the next id or IGNORED.

    `answers` is a boolean (rows, time) that marks the positions which predict answer tokens.
    """

    ids: Tensor
    targets: Tensor
    answers: Tensor


@dataclass(frozen=True)
class Example:
    """A prompt and its answer with the stop token."""

    prompt: list[int]
    answer: list[int]

    @property
    def length(self) -> int:
        """Number of positions that the model reads."""
        return len(self.prompt) + len(self.answer) - 1


def collate(examples: list[Example]) -> Batch:
    """Pad examples on the right into a batch."""
    time = max(example.length for example in examples)
    ids = torch.full((len(examples), time), PAD)
    targets = torch.full((len(examples), time), IGNORED)
    answers = torch.zeros((len(examples), time), dtype=torch.bool)
    for row, example in enumerate(examples):
        text = torch.tensor(example.prompt + example.answer)
        ids[row, : example.length] = text[:-1]
        targets[row, : example.length] = text[1:]
        answers[row, len(example.prompt) - 1 : example.length] = True
    return Batch(ids, targets, answers)


def examples(
    tokenizer: Any, workload: str, count: int, seed: int, split: str = "train"
) -> Iterator[Example]:
    """Yield the first `count` examples of a workload's rows under this seed."""
    for row in islice(iter_rows(workload, split, seed), count):  # type: ignore[arg-type]
        prompt = encode_prompt(tokenizer, workload, row)
        yield Example(prompt, [*encode_answer(tokenizer, workload, row), END])


def pool_seed(seed: int, number: int) -> int:
    """Return the seed of a pool's rows."""
    return seed * 1_000_003 + number + 1


def row_pool(
    tokenizer: Any, mix: Mapping[str, int], rows: int, seed: int, number: int
) -> list[list[Example]]:
    """Return POOL batches of `rows` examples, each of similar lengths, in a seeded order.

    Args:
        tokenizer: the demo tokenizer.
        mix: share of each workload, and of the drills, in parts.
        rows: examples in a batch.
        seed: seed of the training run.
        number: which pool; a pool depends on nothing but the arguments, so a run can resume.
    """
    total = rows * POOL
    drawn: list[Example] = []
    parts = sum(mix.values())
    for workload, share in mix.items():
        count, own_seed = total * share // parts, pool_seed(seed, number)
        if workload == DRILLS:
            drawn += [Example(*ids) for ids in drill_prompts(tokenizer, count, own_seed)]
        else:
            drawn += examples(tokenizer, workload, count, own_seed)
    drawn.sort(key=lambda example: example.length)
    batches = [drawn[start : start + rows] for start in range(0, len(drawn) - rows + 1, rows)]
    generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
    order = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[i] for i in order]
