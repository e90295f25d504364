"""Decoding on a CPU with the C++ kernels: a segment of layers in one call."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backends.engine.draws import Draws
from backends.engine.executors.base import (
    RING,
    Int32,
    StepRows,
    beyond,
    check_boundary,
    check_prompts,
    unwatched,
)
from backends.engine.executors.host_cache import HostCache
from backends.engine.executors.native_trees import NativeTrees
from backends.engine.executors.stepwise import StepwiseCalls, continue_by_steps
from backends.engine.model.architecture import Architecture
from backends.engine.model.forward import Rotary
from backends.engine.model.heads import ExitHead
from backends.engine.model.memory import KeptMemory
from backends.engine.model.packed import (
    DTYPES,
    PackedLayer,
    PackedMatrix,
    PackedWeights,
    Packer,
    check_sizes,
    packed_weights,
)
from backends.engine.model.taps import Taps
from backends.engine.model.weights import Weights
from backends.engine.sublayers.sets import Sublayers, check_left_out
from backends.kernels.cpu import native

Hidden = NDArray[np.float32]
_NO_ROWS = np.empty(0, np.int32)
MOST_ROWS = 256
"""Rows of one call; more are run one part after another."""
POSITIONS = 32
"""The kernels read the values of so many positions together."""
_ALL_ROWS = np.arange(MOST_ROWS, dtype=np.int32)


class NativeExecutor(StepwiseCalls):
    """The `Executor` protocol over `backends.kernels.cpu.native`.

    Args:
        weights: on the CPU, float32, bfloat16 or float16; packed ones are shared, others packed
            into a copy.
        heads: exit heads by ascending layer; none makes one segment of all layers.
        slots: sequences that the cache holds.
        max_len: positions per sequence.
        threads: OpenMP threads; torch's number by default.

    Raises:
        EngineError: for a width, feed-forward width or head size that is no multiple of 16.
        NativeUnavailableError: when the kernels cannot be built here.
    """

    device = "cpu"
    piece = 1

    def __init__(
        self,
        weights: Weights | PackedWeights,
        architecture: Architecture,
        heads: Sequence[ExitHead] = (),
        *,
        slots: int,
        max_len: int,
        threads: int | None = None,
    ) -> None:
        check_sizes(architecture)
        self._library = native.library()
        self.kernels = f"native-{self._library.instructions().decode()}"
        self.architecture, self.slots, self.max_len = architecture, slots, max_len
        self.exits = tuple(head.layer for head in heads)
        self._dtype = weights.embedding.dtype
        packed = packed_weights(weights)
        self._kept = KeptMemory()
        self._packed = Packer(self._kept, self._dtype)
        self._views: tuple[NativeExecutor, NDArray[np.uint8]] | None = None
        self._taps: Taps | None = None
        self._limits = slots, max_len, architecture.vocabulary
        self._length = -(-max_len // POSITIONS) * POSITIONS
        self._cache = HostCache(architecture, slots + 1, self._length, self._dtype)
        self._spans = list(itertools.pairwise((0, *self.exits, architecture.layers)))
        width = architecture.width
        self._boundaries = [np.zeros((slots + 1, RING, width), np.float32) for _ in self._spans]
        self._at_boundary = [boundary.ctypes.data for boundary in self._boundaries]
        self._rows = native.CRows()
        self._at_rows = ctypes.addressof(self._rows)
        self._tokens = (ctypes.c_int32 * MOST_ROWS)()
        self._confidences = (ctypes.c_float * MOST_ROWS)()
        self._token_ids = [head.tokens() for head in heads]
        matrices = [*(head.matrix for head in heads), packed.head]
        self._heads = list(map(self._head, matrices, self._boundaries))
        for described, head in zip(self._heads, heads, strict=False):
            described.margins = head.margin
        self._model = self._describe(packed, threads or torch.get_num_threads())
        self._at_all = self._at
        self.trees = NativeTrees(self._model, self._heads[-1], architecture, MOST_ROWS)

    def read(self, rows: StepRows) -> None:
        """See `Executor.read`. Raises `EngineError` for a prompt of no or too many tokens."""
        check_prompts(rows, self.max_len)
        layers = (0, self.architecture.layers)
        self._advance(len(self.exits), rows, layers, _NO_ROWS, self._at_all)

    def segment(self, index: int, rows: StepRows) -> None:
        """See `Executor.segment`."""
        self._advance(index, rows, self._spans[index], _NO_ROWS)

    def fill(self, index: int, rows: StepRows) -> None:
        """See `Executor.fill`."""
        check_boundary(index, self.exits)
        span = self._spans[index][0], self.architecture.layers
        for start in range(0, len(rows), MOST_ROWS):
            call = self._at, self._part(rows, start), *span, self._at_boundary[index - 1]
            self._check(self._library.fill_rows(*call), rows)

    def exit_head(self, index: int, rows: StepRows) -> tuple[list[int], list[float]]:
        """See `Executor.exit_head`."""
        return self._advance(index, rows, (0, 0), np.arange(len(rows), dtype=np.int32))

    def greedy(self, rows: StepRows) -> list[int]:
        """See `Executor.greedy`."""
        return self.exit_head(len(self.exits), rows)[0]

    def advance(self, index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        """See `Executor.advance`."""
        return self._advance(index, rows, self._spans[index], wanted)

    def whole(self, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        """See `Executor.whole`: one call."""
        return self._advance(len(self.exits), rows, (0, self.architecture.layers), wanted)

    def continued(
        self,
        rows: StepRows,
        wanted: Int32,
        most: Int32,
        threshold: float,
        stops: Int32,
        draws: Draws | None = None,
    ) -> list[list[int]]:
        """See `Executor.continued`."""
        if len(rows) > MOST_ROWS:
            return continue_by_steps(self, rows, wanted, most, threshold, stops, draws)
        head, room = self._heads[-1], int(most.max(initial=0))
        head.count, head.rows = len(wanted), wanted.ctypes.data
        counts = np.empty(len(wanted), np.int32)
        tokens = np.empty((len(wanted), room), np.int32)
        whole = native.CContinuation(
            *(most.ctypes.data, threshold, stops.ctypes.data, len(stops), room),
            *(tokens.ctypes.data, counts.ctypes.data),
        )
        call = (
            *(self._at, self._part(rows, 0), self.architecture.layers, self._at_boundary[-1]),
            *(ctypes.addressof(head), ctypes.addressof(whole)),
        )
        if draws is None:
            done = self._library.continue_greedy(*call)
        else:
            done = self._library.continue_sampled(*call, draws.address)
        self._check(done, rows)
        return [row[:n] for row, n in zip(tokens.tolist(), counts.tolist(), strict=True)]

    def boundary(self, index: int) -> Tensor:
        """See `Executor.boundary`."""
        return torch.from_numpy(self._boundaries[index - 1])

    def logits(self, rows: StepRows, index: int = -1) -> Tensor:
        """See `Executor.logits`."""
        head = self._heads[index]
        found = torch.empty(len(rows), head.vocabulary, dtype=torch.float32)
        for start in range(0, len(rows), MOST_ROWS):
            call = self._at, self._part(rows, start), ctypes.addressof(head)
            head.count, head.rows = self._rows.count, _ALL_ROWS.ctypes.data
            self._check(self._library.head_logits(*call, found[start:].data_ptr()), rows)
        return found

    def skipping(self, left_out: Sublayers) -> NativeExecutor:
        """See `Executor.skipping`."""
        check_left_out(left_out, self.architecture.layers)
        view, mask = unwatched(self), left_out.mask(self.architecture.layers)
        view._model = native.CModel.from_buffer_copy(self._model)
        view._model.skipped = mask.ctypes.data
        view._at, view._views = ctypes.addressof(view._model), (self, mask)
        return view

    def keep_states(self, layers: Sequence[int]) -> Tensor:
        """See `KeepsStates.keep_states`."""
        shape = self.architecture
        taps = Taps.allocate(layers, self.slots, self.max_len, shape.width, torch.float32)
        self._taps, places = taps, taps.by_depth(shape.layers)
        self._kept.hold(places)
        self._model.taps, self._model.states = places.ctypes.data, taps.states.data_ptr()
        self._model.tap_count = len(layers)
        return taps.states

    def release(self, slot: int, length: int) -> None:
        """See `Executor.release`."""
        self._cache.release(slot, length)
        if self._taps is not None:
            self._taps.release(slot, length)

    def close(self) -> None:
        """Let go of the weights and the cache."""
        del self._model, self._at, self._at_all, self._cache, self._taps, self.trees
        for held in (self._kept, self._heads, self._boundaries):
            held.clear()

    def _advance(
        self, index: int, rows: StepRows, span: tuple[int, int], wanted: Int32, at: int = 0
    ) -> tuple[list[int], list[float]]:
        """Layers of `span` into boundary `index` + 1, then that boundary's head on the rows whose
        numbers are `wanted` (ascending), in calls of at most `MOST_ROWS` rows."""
        source = self._at_boundary[index - 1] if index and span[0] else None
        target, head, at = self._at_boundary[index], self._heads[index], at or self._at
        tokens: list[int] = []
        confidences: list[float] = []
        for start in range(0, len(rows), MOST_ROWS):
            here = wanted
            if len(rows) > MOST_ROWS:
                inside = (wanted >= start) & (wanted < start + MOST_ROWS)
                here = wanted[inside] - np.int32(start)
            head.count = asked = len(here)
            if asked:
                head.rows = here.ctypes.data
            call = at, self._part(rows, start), *span, source, target, ctypes.addressof(head)
            self._check(self._library.advance(*call), rows)
            tokens += self._tokens[:asked]
            confidences += self._confidences[:asked]
        shortlist = self._token_ids[index] if index < len(self.exits) else None
        if shortlist is not None:
            tokens = [shortlist[token] for token in tokens]
        return tokens, confidences

    def _check(self, done: int, rows: StepRows) -> None:
        if not done:
            raise beyond("native executor", rows, self._limits)

    def _part(self, rows: StepRows, start: int) -> int:
        """Where up to `MOST_ROWS` rows from `start` are described; the next call overwrites it."""
        count, at = len(rows), rows.table.ctypes.data + 4 * start
        part = self._rows
        part.count = min(MOST_ROWS, count - start)
        part.slots, part.positions, part.tokens = at, at + 4 * count, at + 8 * count
        return self._at_rows

    def _describe(self, weights: PackedWeights, threads: int) -> native.CModel:
        shape = self.architecture
        rotary = Rotary.build(shape, self.max_len)
        layers = (native.CLayer * shape.layers)(
            *(self._layer(layer, number) for number, layer in enumerate(weights.layers))
        )
        model = native.CModel(
            DTYPES[self._dtype],
            *(shape.width, shape.feed_forward, shape.heads, shape.kv_heads, shape.head_dim),
            *(self._length, RING, threads, self.slots, self.max_len, shape.vocabulary),
            shape.epsilon,
            self._packed(weights.embedding),
            *(self._kept.vector(t) for t in (weights.norm, rotary.cosines, rotary.sines)),
            layers,
        )
        self._at = ctypes.addressof(model)
        shared, own = native.scratch_bytes(model, MOST_ROWS)
        model.shared, model.own_bytes = self._kept.scratch(shared), own
        model.own = self._kept.scratch(own * threads)
        return model

    def _layer(self, layer: PackedLayer, number: int) -> native.CLayer:
        gains = (layer.input_norm, layer.post_norm, layer.qkv_bias, layer.q_norm, layer.k_norm)
        return native.CLayer(
            *(self._kept.vector(gain) for gain in gains),
            *map(self._packed, (layer.qkv, layer.out, layer.gate_up, layer.down)),
            *self._cache.layer(number),
        )

    def _head(self, matrix: Tensor | PackedMatrix, boundary: Hidden) -> native.CHead:
        size = 4 * self._library.parts_floats(MOST_ROWS, len(matrix))
        return native.CHead(
            *(self._packed(matrix), len(matrix), boundary.ctypes.data, self._kept.scratch(size)),
            *(0, None, ctypes.addressof(self._tokens), ctypes.addressof(self._confidences), 0),
        )
