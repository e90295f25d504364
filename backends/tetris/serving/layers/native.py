"""Some of a model's layers with the C++ kernels: a stage of a pipeline, in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from torch import Tensor

from backends.engine.executors.base import Int32, StepRows
from backends.engine.executors.native import MOST_ROWS, NativeExecutor
from backends.engine.model.architecture import Architecture
from backends.engine.model.heads import ExitHead
from backends.engine.model.packed import PackedMatrix, PackedWeights
from backends.tetris.serving.layers.base import Hidden


class NativeStage(NativeExecutor):
    """The `StageLayers` protocol over `NativeExecutor`.

    Args:
        weights: packed, with the stage's layers alone.
        architecture: the whole model's.
        head: what speaks after the last of the layers; the model's own where it is None.
        slots: sequences that the cache holds.
        max_len: positions per sequence.
        threads: OpenMP threads; torch's number by default.

    Raises:
        EngineError, NativeUnavailableError: as `NativeExecutor`.
    """

    def __init__(
        self,
        weights: PackedWeights,
        architecture: Architecture,
        head: ExitHead | None = None,
        *,
        slots: int,
        max_len: int,
        threads: int | None = None,
    ) -> None:
        self._given: Hidden | None = None
        own = weights if head is None else replace(weights, head=_packed(head.matrix))
        self._all = (0, len(weights.layers))
        super().__init__(
            own,
            replace(architecture, layers=len(weights.layers)),
            slots=slots,
            max_len=max_len,
            threads=threads,
        )
        if head is not None:
            self._heads[-1].margins = head.margin
        self._left: Hidden = self.keep_states([len(weights.layers)]).numpy()[:, :, 0]

    def run(
        self, rows: StepRows, states: Hidden | None, wanted: Int32, *, is_prompt: bool = False
    ) -> tuple[list[int], list[float]]:
        """See `StageLayers.run`; prompts are rows like others."""
        tokens: list[int] = []
        sure: list[float] = []
        for start, part in self._given_parts(rows, states):
            here = wanted[(wanted >= start) & (wanted < start + MOST_ROWS)] - np.int32(start)
            found = self._advance(0, part, self._all, here)
            tokens += found[0]
            sure += found[1]
        return tokens, sure

    def fill_from(self, rows: StepRows, states: Hidden) -> None:
        """See `StageLayers.fill_from`."""
        for _, part in self._given_parts(rows, states):
            call = self._at, self._part(part, 0), *self._all, None
            self._check(self._library.fill_rows(*call), part)

    def left(self, rows: StepRows) -> Hidden:
        """See `StageLayers.left`."""
        return self._left[rows.slots, rows.positions]

    def wait(self) -> None:
        """See `StageLayers.wait`; nothing is done behind anybody's back."""

    def _given_parts(self, rows: StepRows, states: Hidden | None) -> Iterator[tuple[int, StepRows]]:
        """At most `MOST_ROWS` rows at a time, with the number of their first; while one is handed
        out its states are what the next call begins with."""
        for start in range(0, len(rows), MOST_ROWS):
            end = start + MOST_ROWS
            if states is not None:
                self._given = np.ascontiguousarray(states[start:end], np.float32)
            try:
                yield start, StepRows(*(column[start:end] for column in rows.table))
            finally:
                self._given = None

    def _part(self, rows: StepRows, start: int) -> int:
        at = super()._part(rows, start)
        self._rows.states = None if self._given is None else self._given.ctypes.data
        return at


def _packed(matrix: Tensor | PackedMatrix) -> PackedMatrix:
    return matrix if isinstance(matrix, PackedMatrix) else PackedMatrix.of(matrix, matrix.dtype)
