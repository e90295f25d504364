"""Some of a model's layers on a GPU: a stage of a pipeline, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from backends.engine.executors.base import RING, Int32, StepRows
from backends.engine.executors.cuda import CudaExecutor
from backends.engine.executors.cuda_calls import prompts
from backends.engine.executors.cuda_calls.layers import Activations, run_layers
from backends.engine.executors.cuda_calls.table import CallTable
from backends.engine.model.architecture import Architecture
from backends.engine.model.forward import prefill
from backends.engine.model.heads import ExitHead
from backends.engine.model.memory import KEPT_BYTES, SparseMemory
from backends.engine.model.weights import Weights
from backends.kernels.triton_runtime import INTERPRETED
from backends.tetris.serving.layers.base import Hidden

_NO_ROWS = np.empty(0, np.int32)


class CudaStage(CudaExecutor):
    """The `StageLayers` protocol over `CudaExecutor`: calls have its numbers of rows, so that rows
    meet the kernels that they meet there.

    States come from the host and go back to it, float32: between calls of graphs in the model's
    dtype, behind the passes of long prompts as they are. They are kept there too.

    Args:
        weights: on the stage's device, with its layers alone.
        architecture: the whole model's.
        head: what speaks after the last of the layers; the model's own where it is None, and
            nothing follows.
        is_first: it begins with tokens.
        slots: sequences that the cache holds.
        max_len: positions per sequence.
        rows: of every call that is not of prompts.

    Raises:
        EngineError: as `CudaExecutor`.
    """

    def __init__(
        self,
        weights: Weights,
        architecture: Architecture,
        head: ExitHead | None = None,
        *,
        is_first: bool,
        slots: int,
        max_len: int,
        rows: int,
    ) -> None:
        like, width = weights.embedding, architecture.width
        shape = replace(architecture, layers=len(weights.layers))
        most = max(rows, prompts.PROMPT_ROWS)
        self._is_first, self._is_last = is_first, head is None
        self._given, self._outgoing = like.new_zeros(2, most, width)
        self._in_order = torch.arange(most, dtype=torch.int32, device=like.device)
        final = None if head is None else replace(head, layer=shape.layers)
        super().__init__(weights, shape, slots=slots, max_len=max_len, rows=rows, final=final)
        every = range(shape.layers)
        (self._filling,) = self._ready([lambda: self._fill_with(self._given[:rows], every)])
        self._memory = SparseMemory(4 * slots * max_len * width)
        kept = self._memory.bytes.view(np.float32)
        self._left: Hidden = kept.reshape(slots, max_len, width)

    def run(
        self, rows: StepRows, states: Hidden | None, wanted: Int32, *, is_prompt: bool = False
    ) -> tuple[list[int], list[float]]:
        """See `StageLayers.run`."""
        if is_prompt:
            self._read(rows, states)
            ends = StepRows(*(column[wanted] for column in rows.table))
            return self.exit_head(0, ends) if len(wanted) else ([], [])
        tokens: list[int] = []
        sure: list[float] = []
        for start, part in self._given_parts(rows, states):
            here = wanted[(wanted >= start) & (wanted < start + len(part))] - np.int32(start)
            found = self.advance(0, part, here)
            tokens += found[0]
            sure += found[1]
            self._keep(part)
        return tokens, sure

    def fill_from(self, rows: StepRows, states: Hidden) -> None:
        """See `StageLayers.fill_from`."""
        for _, part in self._given_parts(rows, states):
            self._table.send(part, 0, _NO_ROWS)
            self._filling()

    def left(self, rows: StepRows) -> Hidden:
        """See `StageLayers.left`."""
        return self._left[rows.slots, rows.positions]

    def release(self, slot: int, length: int) -> None:
        """See `Executor.release`: the memory of states that a short sequence would not fill."""
        first = self._left[:slot].nbytes
        if (filled := self._left[slot, :length].nbytes) > KEPT_BYTES:
            self._memory.give_back(first + KEPT_BYTES, first + filled)

    def wait(self) -> None:
        """See `StageLayers.wait`."""
        if not INTERPRETED:
            torch.cuda.current_stream(self._given.device).synchronize()

    @torch.no_grad()
    def _read(self, rows: StepRows, states: Hidden | None) -> None:
        """Whole prompts, as `CudaExecutor.read` reads each of them."""
        short: list[int] = []
        start = 0
        for slot, _, tokens in rows.spans():
            end = start + len(tokens)
            if len(tokens) <= self._prompts.longest:
                short += range(start, end)
            else:
                self._read_alone(slot, tokens, None if states is None else states[start:end])
            start = end
        packed = StepRows(*(column[short] for column in rows.table))
        ends = np.flatnonzero(np.diff(packed.slots, append=-1)).astype(np.int32)
        before = None if states is None else states[short]
        for start in range(0, len(packed), self._prompts.rows):
            self._bring(before, start, start + self._prompts.rows)
            count = self._prompts.call(packed, start, ends)
            end = start + count
            self._keep(StepRows(*(column[start:end] for column in packed.table)))

    def _read_alone(self, slot: int, tokens: Int32, states: Hidden | None) -> None:
        place = self._given.device
        hidden = prefill(
            *(self._weights, self.architecture),
            *(torch.tensor(tokens, dtype=torch.int64, device=place), self._cells.rotary),
            *self._cells.of(slot)[:2],
            entered=None if states is None else torch.tensor(states, device=place),
            everywhere=not self._is_last,
        )
        if not self._is_last:
            self._left[slot, : len(tokens)] = hidden.cpu().numpy()
            hidden = hidden[-1]
        self._boundaries[-1][slot * RING + (len(tokens) - 1) % RING] = hidden

    def _given_parts(self, rows: StepRows, states: Hidden | None) -> Iterator[tuple[int, StepRows]]:
        """As many rows at a time as a call has, with the number of their first; what they begin
        with is where the call looks for it."""
        for start in range(0, len(rows), self._rows):
            end = start + self._rows
            self._bring(states, start, end)
            yield start, StepRows(*(column[start:end] for column in rows.table))

    def _bring(self, states: Hidden | None, start: int, end: int) -> None:
        if states is not None:
            some = torch.from_numpy(np.ascontiguousarray(states[start:end]))
            self._given[: len(some)].copy_(some)

    def _keep(self, rows: StepRows) -> None:
        """What the last call has made of these rows, unless nothing follows."""
        if not self._is_last:
            found = self._outgoing[: len(rows)].float().cpu().numpy()
            self._left[rows.slots, rows.positions] = found

    def _run_segment(self, index: int) -> None:
        self._run_stage(self._table, self._held, None)

    def _run_prompts(self, table: CallTable, held: Activations, reach: int) -> None:
        self._run_stage(table, held, reach)

    def _run_stage(self, table: CallTable, held: Activations, reach: int | None) -> None:
        """From what was given to what goes out, and to where the head looks for it."""
        order = self._in_order[: len(table.tokens)]
        run_layers(
            *(self._weights, range(self.architecture.layers), held),
            (self._weights.embedding, table.tokens) if self._is_first else (self._given, order),
            (self._outgoing, order),
            replace(self._cells, slots=table.slots, positions=table.positions, reach=reach),
        )
        self._boundaries[-1][table.places.long()] = self._outgoing[: len(order)]
