"""An EAGLE-3 head in plain torch, on a CPU or a GPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from backends.engine.drafters.eagle.drafter import StepwiseEagle
from backends.engine.drafters.eagle.sizes import eagle_architecture
from backends.engine.drafters.eagle.weights import EagleWeights
from backends.engine.executors.base import RING, StepRows
from backends.engine.executors.torch import TorchExecutor
from backends.engine.executors.torch_rows import TorchRows
from backends.engine.model.architecture import Architecture
from backends.engine.model.weights import LayerWeights, ModelParts, Weights


class TorchEagle(StepwiseEagle, TorchExecutor):
    """The `EagleExecutor` protocol. In its cache and boundary a row lies at the position of the
    state that it reads, one before that of its token.

    Args:
        weights: the head's, on the target's device and in its dtype.
        target: the model that it drafts for.
        architecture: the target's.
        states: what the target's `keep_states` gave.
        slots: the target's.
        max_len: the target's.
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
    ) -> None:
        self._fusion, self._token_norm = weights.fusion, weights.token_norm
        self._source, self._from_source = states, False
        layers = (weights.layer,)
        whole = ModelParts(target.embedding, layers, weights.norm, target.head, target.epsilon)
        super().__init__(whole, eagle_architecture(architecture), slots=slots, max_len=max_len)

    def segment(self, index: int, rows: StepRows) -> None:
        """The rows of one pass, all from the target's states or all from the head's outputs."""
        super().segment(index, rows)
        self._from_source = False

    def _embedded(self, part: TorchRows) -> Tensor:
        """What the layer begins with: fused states of the target, or the head's last output."""
        if self._from_source:
            found = self._source[part.slots, part.positions].flatten(1)
            return functional.linear(found.to(self._fusion.dtype), self._fusion)
        return self._boundaries[0, part.slots, (part.positions - 1) % RING]

    def _read_by(self, layer: LayerWeights, x: Tensor, part: TorchRows) -> Tensor:
        embedded = super()._embedded(part)
        left = self._norm(embedded, self._token_norm)
        return torch.cat((left, self._norm(x, layer.input_norm)), dim=-1)
