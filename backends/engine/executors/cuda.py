"""Decoding on CUDA: Triton kernels, cuBLAS for the matrix products, one CUDA graph per segment.

Every tensor stands still. A call copies one small table to the device (slots, positions, tokens,
places in the boundary rings) and replays the graph of its segment, and that of its head where rows
ask for it. All calls run at the same number of rows, padded with rows of the scratch slot, so that
a row always meets the same kernels; short prompts are read by calls of more rows, long ones by a
pass of their own. The KV cache is reserved whole.

Under ``TRITON_INTERPRET=1`` the same class runs on the CPU, without graphs: for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from backends.engine.executors.base import (
    RING,
    Int32,
    StepRows,
    check_boundary,
    check_prompts,
    unwatched,
)
from backends.engine.executors.cuda_calls.graph import capture, finish
from backends.engine.executors.cuda_calls.heads import CudaHead, final_norm
from backends.engine.executors.cuda_calls.layers import (
    FEW_CALLS,
    Activations,
    Cells,
    check_sizes,
    fill_cells,
    run_layers,
)
from backends.engine.executors.cuda_calls.prompts import Prompt, PromptCalls
from backends.engine.executors.cuda_calls.table import CallTable
from backends.engine.executors.cuda_calls.trees import CudaTrees
from backends.engine.executors.stepwise import StepwiseCalls
from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.heads import ExitHead, check_exits
from backends.engine.model.weights import Weights
from backends.engine.sublayers.sets import NOTHING, Sublayers, check_left_out
from backends.kernels.exit_head import final_logits
from backends.kernels.triton_runtime import INTERPRETED, require

_NO_ROWS = np.empty(0, np.int32)


class CudaExecutor(StepwiseCalls):
    """The `Executor` protocol over Triton kernels and cuBLAS.

    Args:
        weights: on a CUDA device, bfloat16, float16 or float32.
        architecture: their shape.
        heads: exit heads by ascending layer; none makes one segment of all layers.
        slots: sequences that the cache holds.
        max_len: positions per sequence.
        rows: of every call, 1 to 64; more rows are run one part after another.
        final: the exit head that speaks after the last layer, where the model's own does not.

    Raises:
        EngineError: for what the kernels cannot run on, and when one of them does not build.
    """

    def __init__(
        self,
        weights: Weights,
        architecture: Architecture,
        heads: Sequence[ExitHead] = (),
        *,
        slots: int,
        max_len: int,
        rows: int = 8,
        final: ExitHead | None = None,
    ) -> None:
        place = weights.embedding.device
        require("cuda executor", place)
        check_sizes(slots, max_len, rows)
        check_exits(architecture, heads)
        self.architecture, self.slots, self.max_len = architecture, slots, max_len
        self.piece, self.device = max_len, str(place)
        self.exits = tuple(head.layer for head in heads)
        self.kernels = "triton-interpreted" if INTERPRETED else "triton"
        self._weights, self._rows, self._left_out = weights, rows, NOTHING
        like = weights.embedding
        self._table = CallTable(rows, slots, max_len, architecture.vocabulary, place)
        where = self._table.slots, self._table.positions
        self._cells = Cells.allocate(architecture, slots, max_len, like, where)
        self._held = Activations.allocate(architecture, rows, max_len, like)
        self._spans = list(pairwise((0, *self.exits, architecture.layers)))
        ring = (slots + 1) * RING, architecture.width
        self._boundaries = [like.new_zeros(ring) for _ in self._spans]
        every = *heads, final or ExitHead(architecture.layers, weights.head)
        self._heads = [CudaHead.of(head, like, rows) for head in every]
        self._final = self._heads[-1] if final is None else None
        self._logits = torch.empty(rows, len(weights.head), dtype=torch.float32, device=place)
        heads_only = (partial(self._run_head, index) for index in range(len(self._spans)))
        self._runs = [*self._segments(), *self._ready([*heads_only, self._run_logits])]
        self._fills: dict[int, Callable[[], None]] = {}
        self._prompts = self._prompt_calls()
        given = weights, architecture, self._cells, self._held
        self.trees = CudaTrees(*given, self._heads[-1], self._logits, self._ready)

    @torch.no_grad()
    def read(self, rows: StepRows) -> None:
        """See `Executor.read`. Prompts are whole (`piece`), what drafting models read is not."""
        check_prompts(rows, self.max_len)
        if rows.slots.min() < 0 or rows.slots.max() >= self.slots:
            raise EngineError(f"cuda executor: a prompt in slot {rows.slots.max()} of {self.slots}")
        short: list[Prompt] = []
        for slot, first, tokens in rows.spans():
            if not first and len(tokens) <= self._prompts.longest:
                short.append((slot, tokens.tolist()))
                continue
            step = min(self._rows, RING)  # a boundary holds no more positions of a slot
            if first and len(tokens) <= FEW_CALLS * step:
                for start in range(0, len(tokens), step):
                    part = StepRows.span(slot, first + start, tokens[start : start + step].tolist())
                    self.whole(part, _NO_ROWS)
                continue
            given = self._weights, self.architecture, slot, first, tokens
            hidden = self._cells.read_alone(*given)
            self._boundaries[-1][slot * RING + (first + len(tokens) - 1) % RING] = hidden
        self._prompts.read(short)

    def segment(self, index: int, rows: StepRows) -> None:
        """See `Executor.segment`."""
        self.advance(index, rows, _NO_ROWS)

    @torch.no_grad()
    def fill(self, index: int, rows: StepRows) -> None:
        """See `Executor.fill`. A graph for each boundary, made when it is first asked for: ask for
        each before anything is timed."""
        check_boundary(index, self.exits)
        if index not in self._fills:
            (self._fills[index],) = self._ready([partial(self._run_fill, index)])
        for start in range(0, len(rows), self._rows):
            self._table.send(rows, start, _NO_ROWS)
            self._fills[index]()

    def exit_head(self, index: int, rows: StepRows) -> tuple[list[int], list[float]]:
        """See `Executor.exit_head`."""
        return self._parts(index, rows, np.arange(len(rows), dtype=np.int32), layers=False)

    def greedy(self, rows: StepRows) -> list[int]:
        """See `Executor.greedy`."""
        return self.exit_head(len(self.exits), rows)[0]

    def advance(self, index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        """See `Executor.advance`."""
        return self._parts(index, rows, wanted, layers=True)

    def boundary(self, index: int) -> Tensor:
        """See `Executor.boundary`."""
        return self._boundaries[index - 1].view(self.slots + 1, RING, -1)

    @torch.no_grad()
    def logits(self, rows: StepRows, index: int = -1) -> Tensor:
        """See `Executor.logits`."""
        head = self._heads[index]
        found = self._logits.new_empty(len(rows), len(head.matrix))
        everything = np.arange(self._rows, dtype=np.int32)
        for start in range(0, len(rows), self._rows):
            count = self._table.send(rows, start, everything[: len(rows) - start])
            if head is self._final:
                self._runs[-1]()
                logits = self._logits
            else:
                logits = head.logits(self._norm_for_head(index))
            found[start : start + count] = logits[:count]
        finish(found.device)
        return found

    def skipping(self, left_out: Sublayers) -> CudaExecutor:
        """See `Executor.skipping`. Its segments are captured anew, the heads are shared."""
        check_left_out(left_out, self.architecture.layers)
        view = unwatched(self)
        view._left_out = left_out
        view._runs = [*view._segments(), *self._runs[len(self._spans) :]]
        return view

    def keep_states(self, layers: Sequence[int]) -> Tensor:
        """See `KeepsStates.keep_states`. What was captured is captured anew; of views by
        `skipping`, those made later keep states too."""
        self._cells, states = self._cells.keeping(layers, self._weights.embedding)
        self._runs = [*self._segments(), *self._runs[len(self._spans) :]]
        self._prompts = self._prompt_calls()
        return states

    def release(self, slot: int, length: int) -> None:
        """Nothing to do: the cache is reserved whole."""

    def close(self) -> None:
        """Free the device's memory."""
        self.trees.close()
        held = "_runs _fills _prompts _boundaries _heads _final _cells _weights _held _logits"
        for name in (*held.split(), "_table"):
            delattr(self, name)
        if not INTERPRETED:
            torch.cuda.empty_cache()

    def _parts(
        self, index: int, rows: StepRows, wanted: Int32, *, layers: bool
    ) -> tuple[list[int], list[float]]:
        """The layers of segment `index`, if asked for, and its head on the rows numbered in
        `wanted`, in parts of the fixed number of rows."""
        tokens: list[int] = []
        confidences: list[float] = []
        for start in range(0, len(rows), self._rows):
            here = wanted[(wanted >= start) & (wanted < start + self._rows)] - start
            self._table.send(rows, start, here)
            if layers:
                self._runs[index]()
            if len(here):
                self._runs[len(self._spans) + index]()
                found = self._heads[index].found.cpu()[:, : len(here)]
                tokens += found[0].tolist()
                confidences += found[1].view(torch.float32).tolist()
        return tokens, confidences

    def _prompt_calls(self) -> PromptCalls:
        given = self.architecture, self.slots, self.max_len, self._weights.embedding
        return PromptCalls(*given, self._run_prompts, self._ready)

    def _segments(self) -> list[Callable[[], None]]:
        return self._ready([partial(self._run_segment, i) for i in range(len(self._spans))])

    def _ready(self, runs: Sequence[Callable[[], None]]) -> list[Callable[[], None]]:
        # they are run before they are captured: on no row of a call that has been
        self._table.send(StepRows.of(()), 0, _NO_ROWS)
        return list(runs) if INTERPRETED else list(capture(runs, self._logits.device))

    def _run_segment(self, index: int) -> None:
        places, tokens = self._table.places, self._table.tokens
        run_layers(
            self._weights,
            range(*self._spans[index]),
            self._held,
            (self._boundaries[index - 1], places) if index else (self._weights.embedding, tokens),
            (self._boundaries[index], places),
            self._cells,
            self._left_out,
        )

    def _run_prompts(self, table: CallTable, held: Activations, reach: int) -> None:
        run_layers(
            *(self._weights, range(self.architecture.layers), held),
            *((self._weights.embedding, table.tokens), (self._boundaries[-1], table.places)),
            replace(self._cells, slots=table.slots, positions=table.positions, reach=reach),
        )

    def _run_fill(self, index: int) -> None:
        x = self._boundaries[index - 1][self._table.places.long()]
        self._fill_with(x, range(self._spans[index][0], self.architecture.layers))

    def _fill_with(self, x: Tensor, layers: range) -> None:
        fill_cells(self._weights, self.architecture, layers, x, self._cells)

    def _norm_for_head(self, index: int) -> Tensor:
        """The rows that asked for boundary `index` + 1's head, after the final norm."""
        source = self._boundaries[index], self._table.wanted
        return final_norm(self._weights, source, self._held.normed)

    def _run_head(self, index: int) -> None:
        self._heads[index].find(self._norm_for_head(index))

    def _run_logits(self) -> None:
        final_logits(self._norm_for_head(len(self.exits)), self._weights.head, self._logits)
