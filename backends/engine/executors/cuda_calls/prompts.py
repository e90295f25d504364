"""Short prompts on CUDA, several in one call: one graph of all layers at many rows.

Launched one by one, the kernels of a prompt's pass take longer than their work until a prompt has
some 500 tokens (32 layers of an 8B model: 21 ms for 60 tokens on an H200, a graph at 64 rows 5.7).
A row meets the same kernels whatever else is in its call, so that a prompt's numbers depend on the
prompt alone. Which prompts are read so depends on their length alone, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from torch import Tensor

from backends.engine.executors.base import StepRows
from backends.engine.executors.cuda_calls.layers import Activations, Cells, run_layers
from backends.engine.executors.cuda_calls.table import CallTable
from backends.engine.model.architecture import Architecture
from backends.engine.model.weights import Weights

PROMPT_ROWS = 128
"""As many as still wait for the weights, not for arithmetic."""
MOST_CALLS = 4
"""A longer prompt is quicker with a pass of its own."""

Prompt = tuple[int, list[int]]
"""A slot, and the tokens of its positions from 0 on."""


class PromptCalls:
    """Reads prompts of up to `longest` tokens.

    Args:
        weights: the model.
        architecture: its shape.
        cells: of the executor: where keys and values go, and states that are kept. What no prompt
            needs goes into the last slot.
        last: [n, width], the last boundary, which receives the state of each prompt's last token.
        rows: of a call.
        ready: makes runs that only launch kernels callable, by a graph each.
    """

    def __init__(
        self,
        weights: Weights,
        architecture: Architecture,
        cells: Cells,
        last: Tensor,
        rows: int,
        ready: Callable[[Sequence[Callable[[], None]]], list[Callable[[], None]]],
    ) -> None:
        like, (_, slots, _, max_len, _) = weights.embedding, cells.cache.keys.shape
        self.longest = min(rows * MOST_CALLS, max_len)
        self._rows = rows
        table = CallTable(rows, slots - 1, self.longest, architecture.vocabulary, like.device)
        held = Activations.allocate(architecture, rows, self.longest, like)
        run = partial(
            run_layers,
            *(weights, range(architecture.layers), held),
            *((weights.embedding, table.tokens), (last, table.places)),
            replace(cells, slots=table.slots, positions=table.positions, reach=self.longest),
        )
        self._table, (self._run,) = table, ready([run])

    def read(self, prompts: Sequence[Prompt]) -> None:
        """Run them through all layers, as many positions in a call as it has rows."""
        if not prompts:
            return
        rows = StepRows.joined([StepRows.span(slot, 0, tokens) for slot, tokens in prompts])
        ends = np.cumsum([len(tokens) for _, tokens in prompts]) - 1
        for start in range(0, len(rows), self._rows):
            here = ends[(ends >= start) & (ends < start + self._rows)] - start
            self._table.send(rows, start, here, ends_alone=True)
            self._run()
