"""Short prompts on CUDA, several in one call: one graph of all layers at many rows.

Launched one by one, the kernels of a prompt's pass take longer than their work until a prompt has
some 500 tokens (32 layers of an 8B model: 21 ms for 60 tokens on an H200, a graph at 64 rows 5.7).
A row meets the same kernels whatever else is in its call, so that a prompt's numbers depend on the
prompt alone. Which prompts are read so depends on their length alone, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from backends.engine.executors.base import Int32, StepRows
from backends.engine.executors.cuda_calls.layers import Activations
from backends.engine.executors.cuda_calls.table import CallTable
from backends.engine.model.architecture import Architecture

PROMPT_ROWS = 128
"""Of a call: as many as still wait for the weights, not for arithmetic."""
MOST_CALLS = 4
"""A longer prompt is quicker with a pass of its own."""

Prompt = tuple[int, list[int]]
"""A slot, and the tokens of its positions from 0 on."""


class PromptCalls:
    """Reads prompts of up to `longest` tokens.

    Args:
        architecture: of the model.
        slots: of the cache; what no prompt needs goes into the slot behind them.
        max_len: positions per slot.
        like: a tensor of the model's dtype and device.
        layers: launches all layers at the rows of a table, which hand one another activations, and
            of which no position is beyond a reach. They leave the states at the table's places.
        ready: makes runs that only launch kernels callable, by a graph each.
    """

    def __init__(
        self,
        architecture: Architecture,
        slots: int,
        max_len: int,
        like: Tensor,
        layers: Callable[[CallTable, Activations, int], None],
        ready: Callable[[Sequence[Callable[[], None]]], list[Callable[[], None]]],
    ) -> None:
        rows = self.rows = PROMPT_ROWS
        self.longest = min(rows * MOST_CALLS, max_len)
        self._table = CallTable(rows, slots, self.longest, architecture.vocabulary, like.device)
        held = Activations.allocate(architecture, rows, self.longest, like)
        (self._run,) = ready([partial(layers, self._table, held, self.longest)])

    def read(self, prompts: Sequence[Prompt]) -> None:
        """Run them through all layers, as many positions in a call as it has rows."""
        if not prompts:
            return
        rows = StepRows.joined([StepRows.span(slot, 0, tokens) for slot, tokens in prompts])
        ends = np.cumsum([len(tokens) for _, tokens in prompts], dtype=np.int32) - np.int32(1)
        for start in range(0, len(rows), self.rows):
            self.call(rows, start, ends)

    def call(self, rows: StepRows, start: int, ends: Int32) -> int:
        """Run as many of the rows from `start` on as a call has room for; of prompts those whose
        ends are the rows numbered in `ends` (ascending). Returns how many."""
        here = ends[(ends >= start) & (ends < start + self.rows)] - np.int32(start)
        count = self._table.send(rows, start, here, ends_alone=True)
        self._run()
        return count
