"""An EAGLE-3 head with the C++ kernels: a chain of drafts for each sequence in one call."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from backends.engine.drafters.eagle.drafter import AT_ONCE, states_before
from backends.engine.drafters.eagle.sizes import eagle_architecture
from backends.engine.drafters.eagle.weights import EagleWeights
from backends.engine.draws import Draws
from backends.engine.executors.base import Int32, StepRows
from backends.engine.executors.native import NativeExecutor
from backends.engine.model.architecture import Architecture
from backends.engine.model.packed import PackedLayer, PackedWeights, packed_layer, packed_weights
from backends.engine.model.weights import ModelParts, Weights
from backends.kernels.cpu import native

_NOBODY = np.empty(0, np.int32)


class NativeEagle(NativeExecutor):
    """The `EagleExecutor` protocol. In its cache and boundary a row lies at the position of the
    state that it reads, one before that of its token.

    Args:
        weights: the head's, on the CPU.
        target: the model that it drafts for; embedding and head are shared where they are packed.
        architecture: the target's.
        states: what the target's `keep_states` gave.
        slots: the target's.
        max_len: the target's.
        threads: OpenMP threads; torch's number by default.
    """

    def __init__(
        self,
        weights: EagleWeights,
        target: Weights | PackedWeights,
        architecture: Architecture,
        states: Tensor,
        *,
        slots: int,
        max_len: int,
        threads: int | None = None,
    ) -> None:
        self._fusion, self._token_norm = weights.fusion.float(), weights.token_norm
        self._source = states.numpy()
        self._given: Tensor | None = None
        own = packed_weights(target)
        layer = packed_layer(weights.layer, own.embedding.dtype)
        super().__init__(
            ModelParts(own.embedding, (layer,), weights.norm, own.head, own.epsilon),
            eagle_architecture(architecture),
            slots=slots,
            max_len=max_len,
            threads=threads,
        )

    def catch_up(self, rows: StepRows) -> None:
        """See `EagleExecutor.catch_up`."""
        for start in range(0, len(rows), AT_ONCE):
            part = StepRows(*(column[start : start + AT_ONCE] for column in rows.table))
            self._give(part)
            try:
                self.advance(0, states_before(part), _NOBODY)
            finally:
                self._given = None

    def continued(
        self,
        rows: StepRows,
        wanted: Int32,
        most: Int32,
        threshold: float,
        stops: Int32,
        draws: Draws | None = None,
    ) -> list[list[int]]:
        """See `Executor.continued`. Raises `ValueError` for more rows than `AT_ONCE`."""
        if len(rows) > AT_ONCE:
            raise ValueError(f"{len(rows)} rows; expected at most {AT_ONCE}")
        self._give(rows)
        try:
            return super().continued(states_before(rows), wanted, most, threshold, stops, draws)
        finally:
            self._given = None

    def _give(self, rows: StepRows) -> None:
        """The next pass begins with fused states of the target."""
        found = self._source[rows.slots, rows.positions - 1].reshape(len(rows), -1)
        self._given = functional.linear(torch.from_numpy(found), self._fusion)

    def _part(self, rows: StepRows, start: int) -> int:
        at = super()._part(rows, start)
        self._rows.states = None if self._given is None else self._given[start:].data_ptr()
        return at

    def _layer(self, layer: PackedLayer, number: int) -> native.CLayer:
        found = super()._layer(layer, number)
        found.token_norm = self._kept.vector(self._token_norm)
        return found
