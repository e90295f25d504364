"""Trees of guesses on CUDA: `executors.trees` beside `CudaExecutor`.

Rows run in calls of the executor's own number of rows, since cuBLAS sums otherwise at another; in
preorder what a row follows is in its own call or in one before. K and V of every row lie aside, in
a place of their own, which is the row's number. The graphs are made when trees first come, and anew
when there come more rows than there are places: ask for the most before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from backends.engine.executors.base import Int32
from backends.engine.executors.cuda_calls.graph import finish
from backends.engine.executors.cuda_calls.heads import CudaHead, final_norm
from backends.engine.executors.cuda_calls.layers import (
    Activations,
    Cells,
    run_layers,
    turn,
)
from backends.engine.executors.cuda_calls.table import TreeTable
from backends.engine.executors.trees import MOST_TREE_ROWS, TreeRows, check_preorder
from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.cache import KVCache
from backends.engine.model.forward import Rotary
from backends.engine.model.weights import LayerWeights, Weights
from backends.kernels.attention import Branches, attention
from backends.kernels.exit_head import final_logits
from backends.kernels.triton_runtime import power_of_2

SPARE = 16
"""Places behind the last one, of which rows without work share the first: so many that kernels are
compiled for the same divisors as for the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeCells(Cells):
    """Where rows of trees stand: what they write is aside, and their angles are there too."""

    aside: KVCache
    """(layers, 1, kv_heads, places, head_dim) each."""
    angles: Rotary
    """By place; `angles_aside` brings those of the rows."""
    nowhere: Tensor
    """[rows] int32: zeros, the only slot there is aside."""
    places: Tensor
    """[rows] int32"""
    starts: Tensor
    """See `Branches.starts`."""
    ways: Tensor
    """See `Branches.ways`."""

    def angles_aside(self) -> None:
        """Launch the copies."""
        places, positions = self.places.long(), self.positions.long()
        self.angles.cosines[places] = self.rotary.cosines[positions]
        self.angles.sines[places] = self.rotary.sines[positions]

    def attend(self, number: int, layer: LayerWeights, held: Activations, epsilon: float) -> None:
        """See `Cells.attend`."""
        where = self.slots, self.positions
        written = self.aside.keys[number], self.aside.values[number]
        turn(layer, held, epsilon, self.angles, (self.nowhere, self.places), written)
        attention(
            *(held.query, self.cache.keys[number], self.cache.values[number], *where),
            *(held.splits, held.attended, self.reach),
            Branches(*written, self.starts, self.ways),
        )


class TreeCalls:
    """Graphs for trees of up to `places` rows together, and what the last ones left.

    Args:
        weights: the model.
        shape: its shape.
        cells: of the executor, whose cache holds what comes before the trees.
        held: what the layers hand one another, for the executor's number of rows.
        head: the final one.
        logits: (rows, vocabulary) float32, overwritten.
        ready: makes runs that only launch kernels callable, by a graph each.
        places: for rows.
    """

    def __init__(
        self,
        weights: Weights,
        shape: Architecture,
        cells: Cells,
        held: Activations,
        head: CudaHead,
        logits: Tensor,
        ready: Callable[[Sequence[Callable[[], None]]], list[Callable[[], None]]],
        places: int,
    ) -> None:
        self.places, self._rows = places, len(held.residual)
        self._head, self._logits = head, logits
        like, slots = weights.embedding, cells.cache.keys.shape[1] - 1
        self._table = table = TreeTable(self._rows, slots, places, like.device)
        angles = cells.rotary.cosines.new_zeros(2, places + SPARE, shape.head_dim // 2)
        self._cells = own = TreeCells(
            *(cells.cache, cells.rotary, table.slots, table.positions),
            aside=KVCache.allocate(shape, 0, places + SPARE, like.dtype, like.device),
            angles=Rotary(angles[0], angles[1]),
            nowhere=torch.zeros_like(table.slots),
            places=table.places,
            starts=table.starts,
            ways=table.ways,
        )
        hidden = like.new_zeros(places + SPARE, shape.width)
        source, target = (weights.embedding, table.tokens), (hidden, table.places)
        normed = partial(final_norm, weights, (hidden, table.wanted), held.normed)

        def layers() -> None:
            own.angles_aside()
            run_layers(weights, range(shape.layers), held, source, target, own)

        # none of them holds this object: it is gone, with its memory, when nobody else does
        self._layers, self._ask, self._write = ready(
            (
                layers,
                lambda: head.find(normed()),
                lambda: final_logits(normed(), weights.head, logits),
            )
        )

    def run(self, trees: TreeRows, wanted: Int32) -> list[int]:
        """See `Trees.run`."""
        starts, ways = ways_of(trees)
        for start in range(0, len(trees), self._rows):
            self._table.send(trees.rows, starts, ways, start, wanted[: self._rows])
            self._layers()
        found: list[int] = []
        for start in range(0, len(wanted), self._rows):
            here = wanted[start : start + self._rows]
            if start:
                self._table.ask(here)
            self._ask()
            found += self._head.found[0].cpu()[: len(here)].tolist()
        return found

    def logits(self, numbers: Int32) -> Tensor:
        """See `Trees.logits`."""
        found = self._logits.new_empty(len(numbers), self._logits.shape[1])
        for start in range(0, len(numbers), self._rows):
            here = numbers[start : start + self._rows]
            self._table.ask(here)
            self._write()
            found[start : start + len(here)] = self._logits[: len(here)]
        finish(found.device)
        return found

    def keep(self, trees: TreeRows, numbers: Int32) -> None:
        """See `Trees.keep`."""
        where = np.array((*trees.rows.table[:2, numbers], numbers), np.int64)
        slots, positions, places = torch.from_numpy(where).to(self._logits.device)
        cache, aside = self._cells.cache, self._cells.aside
        for kind, found in ((cache.keys, aside.keys), (cache.values, aside.values)):
            kind[:, slots, :, positions] = found[:, 0][:, :, places].permute(2, 0, 1, 3)


class CudaTrees:
    """The `Trees` protocol. Arguments as for `TreeCalls`, but for the places."""

    most = MOST_TREE_ROWS

    def __init__(
        self,
        weights: Weights,
        shape: Architecture,
        cells: Cells,
        held: Activations,
        head: CudaHead,
        logits: Tensor,
        ready: Callable[[Sequence[Callable[[], None]]], list[Callable[[], None]]],
    ) -> None:
        self._made = partial(TreeCalls, weights, shape, cells, held, head, logits, ready)
        _, slots, _, positions, _ = cells.cache.keys.shape
        self._limits = slots - 1, positions, shape.vocabulary
        self._calls: TreeCalls | None = None
        self._last: TreeRows | None = None

    @torch.no_grad()
    def run(self, trees: TreeRows, wanted: Int32) -> list[int]:
        """See `Trees.run`. Raises `EngineError` for a tree of more than `most` rows, too."""
        check_preorder(trees, self._limits)
        sizes = np.diff(np.append(np.flatnonzero(trees.back == 0), len(trees)))
        if (largest := sizes.max(initial=0)) > self.most:
            raise EngineError(f"a tree of {largest} rows: expected at most {self.most}")
        if self._calls is None or self._calls.places < len(trees):
            self._calls = None  # its memory is free before more is taken
            self._calls = self._made(max(self.most, power_of_2(len(trees))))
        self._last = trees
        return self._calls.run(trees, wanted)

    @torch.no_grad()
    def logits(self, numbers: Int32) -> Tensor:
        """See `Trees.logits`; on the device, where they are drawn from."""
        assert self._calls is not None
        return self._calls.logits(numbers)

    @torch.no_grad()
    def keep(self, numbers: Int32) -> None:
        """See `Trees.keep`."""
        if self._calls is not None and self._last is not None and len(numbers):
            self._calls.keep(self._last, numbers)

    def close(self) -> None:
        """Let go of the device's memory."""
        del self._made, self._calls


def ways_of(trees: TreeRows) -> tuple[Int32, Int32]:
    """Where the trees' rows branch off, and their ways from there.

    Args:
        trees: in preorder.

    Returns:
        (n,): the position of the first row of each row's tree; (levels, n): the number of the row
        that is so many levels below the first on a row's way, down to itself.
    """
    numbers, positions = np.arange(len(trees), dtype=np.int32), trees.rows.positions
    first = np.maximum.accumulate(np.where(trees.back == 0, numbers, 0))
    levels = positions - positions[first]
    ways = np.tile(numbers, (int(levels.max(initial=0)) + 1, 1))
    for level in range(1, len(ways)):
        rows = np.flatnonzero(levels == level)
        ways[:level, rows] = ways[:level, rows - trees.back[rows]]
    return positions[first], ways
