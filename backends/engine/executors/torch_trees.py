"""Trees of guesses in plain torch: `executors.trees` beside `TorchExecutor`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from backends.engine.executors.base import Int32, StepRows
from backends.engine.executors.torch_rows import best_of
from backends.engine.executors.trees import TreeRows, check_preorder
from backends.engine.model.architecture import Architecture
from backends.engine.model.cache import KVCache


class TorchTrees:
    """The `Trees` protocol.

    Args:
        layers: runs rows through all layers, each against what the cache holds when it comes, and
            leaves K and V in a (n, layers, 2, kv_heads, head_dim) tensor as well.
        head: (n, vocabulary) float32 logits of (n, width) hidden states.
        cache: of the executor.
        shape: of the model.
    """

    most = 1 << 20

    def __init__(
        self,
        layers: Callable[[StepRows, Tensor], Tensor],
        head: Callable[[Tensor], Tensor],
        cache: KVCache,
        shape: Architecture,
    ) -> None:
        self._layers, self._head, self._cache, self._shape = layers, head, cache, shape
        self._rows: StepRows | None = None
        self._hidden = self._aside = torch.empty(0)

    @torch.no_grad()
    def run(self, trees: TreeRows, wanted: Int32) -> list[int]:
        """See `Trees.run`."""
        slots, positions = self._cache.keys.shape[1] - 1, self._cache.keys.shape[3]
        check_preorder(trees, (slots, positions, self._shape.vocabulary))
        shape = self._shape
        self._aside = self._cache.keys.new_empty(
            len(trees), shape.layers, 2, shape.kv_heads, shape.head_dim
        )
        self._rows, self._hidden = trees.rows, self._layers(trees.rows, self._aside)
        return best_of(self._of(wanted))

    @torch.no_grad()
    def logits(self, numbers: Int32) -> Tensor:
        """See `Trees.logits`."""
        return self._of(numbers).cpu()

    def keep(self, numbers: Int32) -> None:
        """See `Trees.keep`."""
        assert self._rows is not None
        for number in numbers.tolist():
            slot, position = self._rows.table[:2, number].tolist()
            keys, values = self._aside[number].unbind(1)
            self._cache.keys[:, slot, :, position] = keys
            self._cache.values[:, slot, :, position] = values

    def _of(self, numbers: Int32) -> Tensor:
        return self._head(self._hidden[torch.from_numpy(numbers).long().to(self._hidden.device)])
