"""Segments in plain torch, on a CPU or a GPU: the reference for the executors with kernels, and
what runs where those cannot be built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from backends.engine.executors.base import (
    RING,
    Int32,
    StepRows,
    check_boundary,
    check_prompts,
    unwatched,
)
from backends.engine.executors.stepwise import StepwiseCalls
from backends.engine.executors.torch_rows import (
    TorchRows,
    attend_one,
    best_of,
    check_room,
    confidence_of,
    fill_layers,
    parts_of,
)
from backends.engine.executors.torch_trees import TorchTrees
from backends.engine.model.architecture import Architecture
from backends.engine.model.cache import KVCache
from backends.engine.model.forward import Rotary, head_product, prefill, rms_norm, turned
from backends.engine.model.heads import ExitHead, check_exits
from backends.engine.model.taps import Taps
from backends.engine.model.weights import LayerWeights, Weights
from backends.engine.sublayers.sets import NOTHING, Sublayers, check_left_out


class TorchExecutor(StepwiseCalls):
    """The `Executor` protocol in plain torch.

    Every matrix product has the same number of rows, the unused ones zero: then a row's numbers
    depend neither on the others nor on its place (measured on a CPU in float32, bfloat16 and
    float16). Exponentials, which a vector unit and its scalar remainder round differently, are
    taken of one row at a time, and so is attention, in float32. The residual stream has the
    model's dtype.

    Args:
        weights: on the device that is to compute.
        architecture: their shape.
        heads: exit heads by ascending layer; none makes one segment of all layers.
        slots: sequences that the cache holds.
        max_len: positions per sequence.
        rows: rows of every matrix product; more are done one part after another.

    Raises:
        EngineError: for heads that do not fit the model, and sizes that are none.
    """

    kernels = "torch"
    piece = 512

    def __init__(
        self,
        weights: Weights,
        architecture: Architecture,
        heads: Sequence[ExitHead] = (),
        *,
        slots: int,
        max_len: int,
        rows: int = 8,
    ) -> None:
        check_room(slots, max_len, rows)
        check_exits(architecture, heads)
        self.architecture, self.slots, self.max_len = architecture, slots, max_len
        self.exits = tuple(head.layer for head in heads)
        self._place = weights.embedding.device
        self.device = str(self._place)
        self._weights, self._rows, self._left_out = weights, rows, NOTHING
        self._taps: Taps | None = None
        dtype = weights.embedding.dtype
        self._heads = [head.plain().detach().to(self._place, dtype) for head in heads]
        self._heads.append(weights.head)
        self._margins = [head.margin for head in heads]
        self._token_ids = [head.tokens() for head in heads]
        self._cache = KVCache.allocate(architecture, slots, max_len, dtype, self._place)
        self._rotary = Rotary.build(architecture, max_len, self._place)
        self._spans = [range(*pair) for pair in pairwise((0, *self.exits, architecture.layers))]
        ring = (len(self._spans), slots + 1, RING, architecture.width)
        self._boundaries = torch.zeros(ring, dtype=dtype, device=self._place)
        self.trees = TorchTrees(self._run_trees, self._tree_logits, self._cache, architecture)

    def read(self, rows: StepRows) -> None:
        """See `Executor.read`. Raises `EngineError` for a prompt of no or too many tokens.

        A prompt goes through in pieces of `piece` tokens, a piece by itself: what its products
        round depends on how many rows they have.
        """
        check_prompts(rows, self.max_len)
        for slot, first, tokens in rows.spans():
            ids = torch.from_numpy(tokens.astype(np.int64))
            cache = self._cache.keys[:, slot], self._cache.values[:, slot]
            for part in torch.split(ids, self.piece):
                hidden = prefill(
                    *(self._weights, self.architecture, part, self._rotary, *cache),
                    start=first,
                    taps=None if self._taps is None else self._taps.of(slot),
                )
                first += len(part)
            self._boundaries[-1, slot, (first - 1) % RING] = hidden

    @torch.no_grad()
    def segment(self, index: int, rows: StepRows) -> None:
        """See `Executor.segment`."""
        for part in self._parts(rows):
            x = self._boundary(index - 1, part) if index else self._embedded(part)
            for number in self._spans[index]:
                self._tap(number, x, part)
                x = self._layer(number, x, part)
            self._tap(self._spans[index].stop, x, part)
            self._boundaries[index, part.slots, part.positions % RING] = x

    @torch.no_grad()
    def fill(self, index: int, rows: StepRows) -> None:
        """See `Executor.fill`."""
        check_boundary(index, self.exits)
        above = range(self._spans[index].start, self.architecture.layers)
        for part in self._parts(rows):
            x, rotary = self._boundary(index - 1, part), self._rotary.at(part.positions)
            where = part.slots, part.positions
            fill_layers(self._weights, self.architecture, above, x, rotary, self._cache, where)

    def exit_head(self, index: int, rows: StepRows) -> tuple[list[int], list[float]]:
        """See `Executor.exit_head`."""
        logits = self._logits(index, rows)
        tokens = best_of(logits)
        margin = index < len(self.exits) and self._margins[index]
        confidences = [confidence_of(row, margin=margin) for row in logits]
        shortlist = self._token_ids[index] if index < len(self.exits) else None
        return ([shortlist[t] for t in tokens] if shortlist is not None else tokens), confidences

    def greedy(self, rows: StepRows) -> list[int]:
        """See `Executor.greedy`."""
        return best_of(self._logits(len(self.exits), rows))

    def advance(self, index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        """See `Executor.advance`."""
        self.segment(index, rows)
        return self.exit_head(
            index, StepRows(rows.slots[wanted], rows.positions[wanted], rows.tokens[wanted])
        )

    def boundary(self, index: int) -> Tensor:
        """See `Executor.boundary`."""
        return self._boundaries[index - 1]

    def logits(self, rows: StepRows, index: int = -1) -> Tensor:
        """See `Executor.logits`."""
        return self._logits(index % len(self._heads), rows).cpu()

    def skipping(self, left_out: Sublayers) -> TorchExecutor:
        """See `Executor.skipping`."""
        check_left_out(left_out, self.architecture.layers)
        view = unwatched(self)
        view._left_out = left_out
        return view

    def keep_states(self, layers: Sequence[int]) -> Tensor:
        """See `KeepsStates.keep_states`."""
        sizes = (self.slots + 1, self.max_len, self.architecture.width)
        taps = Taps.allocate(layers, *sizes, self._boundaries.dtype, self._place)
        taps.by_depth(self.architecture.layers)
        self._taps = taps
        return taps.states

    def release(self, slot: int, length: int) -> None:
        """Nothing to do: pages that were written stay with the slot."""

    def close(self) -> None:
        """Let go of the weights, the cache and the boundaries."""
        del self._weights, self._heads, self._cache, self._boundaries, self.trees

    @torch.no_grad()
    def _logits(self, index: int, rows: StepRows) -> Tensor:
        """float32 (n, V') after segment `index`, of its own head."""
        found = [torch.empty(0, len(self._heads[index]), device=self._place)]
        for part in self._parts(rows):
            found.append(self._part_logits(index, self._boundary(index, part))[: len(part.real)])
        return torch.cat(found)

    def _part_logits(self, index: int, hidden: Tensor) -> Tensor:
        return head_product(self._norm(hidden, self._weights.norm), self._heads[index])

    def _run_trees(self, rows: StepRows, aside: Tensor) -> Tensor:
        """(n, width) after all layers; see `TorchTrees`."""
        found = []
        for part, kept in zip(self._parts(rows), torch.split(aside, self._rows), strict=True):
            x = self._embedded(part)
            for number in range(self.architecture.layers):
                x = self._layer(number, x, part, kept[:, number])
            found.append(x[: len(part.real)])
        return torch.cat(found)

    def _tree_logits(self, hidden: Tensor) -> Tensor:
        found = [torch.empty(0, len(self._heads[-1]), device=self._place)]
        for part in torch.split(hidden, self._rows) if len(hidden) else ():
            padded = functional.pad(part, (0, 0, 0, self._rows - len(part)))
            found.append(self._part_logits(-1, padded)[: len(part)])
        return torch.cat(found)

    def _embedded(self, part: TorchRows) -> Tensor:
        return functional.embedding(part.tokens, self._weights.embedding)

    def _layer(
        self, number: int, x: Tensor, part: TorchRows, aside: Tensor | None = None
    ) -> Tensor:
        """One layer on (rows, width), or what is not left out of it. `aside`: see `_attended`."""
        layer = self._weights.layers[number]
        if number not in self._left_out.attention:
            x = x + self._attended(number, x, part, aside)
        if number not in self._left_out.mlp:
            x = x + self._feed_forward(layer, x, len(part.real))
        return x

    def _attended(self, number: int, x: Tensor, part: TorchRows, aside: Tensor | None) -> Tensor:
        """Of trees K and V go `aside` too, (rows, 2, kv_heads, head_dim), and into the cache one
        row after another: in preorder what a row follows is at its own place there when the row
        comes."""
        layer, shape = self._weights.layers[number], self.architecture
        joined = functional.linear(self._read_by(layer, x, part), layer.qkv, layer.qkv_bias)
        joined = joined.view(len(x), -1, shape.head_dim)
        sizes = [shape.heads, shape.kv_heads, shape.kv_heads]
        queries, keys, values = torch.split(joined, sizes, dim=1)
        rotary = self._rotary.at(part.positions)
        queries = turned(queries, layer.q_norm, shape, rotary)
        cached = self._cache.keys[number], self._cache.values[number]
        fresh = turned(keys, layer.k_norm, shape, rotary), values
        for kind, new in zip(cached, fresh, strict=True):
            if aside is None:
                kind[part.slots, :, part.positions] = new
        mixed = x.new_zeros(len(x), shape.query_size)
        for row, (slot, position) in enumerate(part.real):
            if aside is not None:
                for kind, new, kept in zip(cached, fresh, aside[row], strict=True):
                    kind[slot, :, position] = kept[:] = new[row]
            seen = (kind[slot, :, : position + 1] for kind in cached)
            mixed[row] = attend_one(queries[row], *seen)
        return functional.linear(mixed, layer.out)

    def _read_by(self, layer: LayerWeights, x: Tensor, part: TorchRows) -> Tensor:
        """What attention's projections are given."""
        return self._norm(x, layer.input_norm)

    def _tap(self, layers: int, x: Tensor, part: TorchRows) -> None:
        if self._taps is not None:
            self._taps.put(layers, (part.slots, part.positions), x)

    def _feed_forward(self, layer: LayerWeights, x: Tensor, count: int) -> Tensor:
        joined = functional.linear(self._norm(x, layer.post_norm), layer.gate_up)
        inner = x.new_zeros(len(x), self.architecture.feed_forward)
        for row in range(count):
            gate, up = joined[row].float().chunk(2)
            inner[row] = functional.silu(gate) * up
        return functional.linear(inner, layer.down)

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return rms_norm(x.float(), gain, self.architecture.epsilon).to(x.dtype)

    def _boundary(self, index: int, part: TorchRows) -> Tensor:
        return self._boundaries[index, part.slots, part.positions % RING]

    def _parts(self, rows: StepRows) -> Iterator[TorchRows]:
        return parts_of(rows, self._rows, self.slots, self._place)
