"""An EAGLE-3 head on CUDA: a draft of each sequence is a table sent, two graphs and a copy back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from backends.engine.drafters.eagle.drafter import StepwiseEagle
from backends.engine.drafters.eagle.sizes import eagle_architecture
from backends.engine.drafters.eagle.weights import EagleWeights
from backends.engine.executors.base import RING, Int32, StepRows
from backends.engine.executors.cuda import CudaExecutor
from backends.engine.executors.cuda_calls.layers import Activations, Cells, run_layers
from backends.engine.executors.cuda_calls.prompts import PromptCalls
from backends.engine.model.architecture import Architecture
from backends.engine.model.weights import LayerWeights, ModelParts, Weights
from backends.kernels.rms_norm import rms_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleCells(Cells):
    """Where the rows of a head stand, which reads a token beside each state."""

    tokens: Tensor
    """[rows, width]: embeddings under their norm."""
    joined: Tensor
    """[rows, 2 * width], overwritten."""

    def project(self, layer: LayerWeights, held: Activations) -> None:
        """See `Cells.project`."""
        torch.cat((self.tokens, held.normed), 1, out=self.joined)
        torch.mm(self.joined, layer.qkv.T, out=held.qkv)


class CudaEagle(StepwiseEagle, CudaExecutor):
    """The `EagleExecutor` protocol. In its cache and boundary a row lies at the position of the
    state that it reads, one before that of its token.

    Args:
        weights: the head's, on the target's device and in its dtype.
        target: the model that it drafts for.
        architecture: the target's.
        states: what the target's `keep_states` gave.
        slots: the target's.
        max_len: the target's.
        rows: of every call.
    """

    def __init__(
        self,
        weights: EagleWeights,
        target: Weights,
        architecture: Architecture,
        states: Tensor,
        *,
        slots: int,
        max_len: int,
        rows: int = 8,
    ) -> None:
        self._fusion, self._token_norm, self._source = weights.fusion, weights.token_norm, states
        self._from_source = False
        like, width = target.embedding, architecture.width
        self._fused, self._tokens = (like.new_empty(rows, width) for _ in range(2))
        self._joined = like.new_empty(rows, 2 * width)
        layers = (weights.layer,)
        super().__init__(
            ModelParts(like, layers, weights.norm, target.head, target.epsilon),
            eagle_architecture(architecture),
            slots=slots,
            max_len=max_len,
            rows=rows,
        )

    def close(self) -> None:
        """Free the device's memory."""
        del self._source, self._fusion, self._begun, self._fused, self._tokens, self._joined
        super().close()

    def _parts(
        self, index: int, rows: StepRows, wanted: Int32, *, layers: bool
    ) -> tuple[list[int], list[float]]:
        """The rows of one pass begin all with the target's states or all with the head's outputs:
        those that follow, with outputs."""
        try:
            return super()._parts(index, rows, wanted, layers=layers)
        finally:
            self._from_source = False

    def _segments(self) -> list[Callable[[], None]]:
        self._begun = self._ready([partial(self._run_layer, source) for source in (False, True)])
        return [lambda: self._begun[self._from_source]()]

    def _prompt_calls(self) -> PromptCalls:
        # a head reads no prompt by itself: they are not captured
        given = self.architecture, self.slots, self.max_len, self._weights.embedding
        return PromptCalls(*given, self._run_prompts, list)

    def _run_layer(self, from_source: bool) -> None:
        table, held, weights = self._table, self._held, self._weights
        slots, positions = table.slots.long(), table.positions.long()
        if from_source:
            torch.mm(self._source[slots, positions].flatten(1), self._fusion.T, out=self._fused)
            places = torch.arange(self._rows, dtype=torch.int32, device=slots.device)
            source = self._fused, places
        else:
            source = self._boundaries[0], (slots * RING + (positions - 1) % RING).int()
        rms_norm(
            weights.embedding,
            rows=self._rows,
            source_rows=table.tokens,
            gain=self._token_norm,
            epsilon=weights.epsilon,
            out=self._tokens,
        )
        own = self._cells
        cells = EagleCells(
            *(own.cache, own.rotary, own.slots, own.positions),
            tokens=self._tokens,
            joined=self._joined,
        )
        target = self._boundaries[0], table.places
        run_layers(weights, range(1), held, source, target, cells)
