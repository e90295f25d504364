"""Decoding on a CPU with the C++ kernels: a segment of layers in one call."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backends.engine.executors.base import RING, Int32, StepRows
from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.heads import ExitHead
from backends.engine.model.weights import LayerWeights, Weights
from backends.kernels.cpu import native

Hidden = NDArray[np.float32]
_NO_ROWS = np.empty(0, np.int32)
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
MOST_ROWS = 256
"""Rows of one call; more are run one part after another."""
LANES = 16
POSITIONS = 32
"""The kernels read values of so many positions together."""
_ALL_ROWS = np.arange(MOST_ROWS, dtype=np.int32)


class NativeExecutor:
    """The `Executor` protocol over `backends.kernels.cpu.native`.

    Args:
        weights: on the CPU, float32, bfloat16 or float16.
        heads: exit heads by ascending layer; none makes one segment of all layers.
        slots: sequences that the cache holds.
        max_len: positions per sequence.
        threads: OpenMP threads; torch's number by default.

    Raises:
        EngineError: for a width, feed-forward width or head size that is no multiple of 16.
        NativeUnavailableError: when the kernels cannot be built here.
    """

    device = "cpu"

    def __init__(
        self,
        weights: Weights,
        architecture: Architecture,
        heads: Sequence[ExitHead] = (),
        *,
        slots: int,
        max_len: int,
        threads: int | None = None,
    ) -> None:
        for name in ("width", "feed_forward", "head_dim"):
            if (size := getattr(architecture, name)) % LANES:
                raise EngineError(f"{name} {size}: the native kernels need a multiple of {LANES}")
        self._library = native.library()
        self.kernels = f"native-{self._library.instructions().decode()}"
        self.architecture, self.slots, self.max_len = architecture, slots, max_len
        self.exits = tuple(head.layer for head in heads)
        self._dtype = weights.embedding.dtype
        self._kept: list[Tensor | NDArray[np.uint8]] = []
        bounds = (0, *self.exits, architecture.layers)
        self._spans = list(itertools.pairwise(bounds))
        width = architecture.width
        self._boundaries = [np.zeros((slots + 1, RING, width), np.float32) for _ in self._spans]
        self._at_boundary = [boundary.ctypes.data for boundary in self._boundaries]
        self._rows = native.CRows()
        self._at_rows = ctypes.addressof(self._rows)
        self._tokens = (ctypes.c_int32 * MOST_ROWS)()
        self._confidences = (ctypes.c_float * MOST_ROWS)()
        self._token_ids = [
            None if head.token_ids is None else head.token_ids.tolist() for head in heads
        ]
        matrices = [*(head.matrix for head in heads), weights.head]
        self._heads = [
            self._head(matrix, boundary)
            for matrix, boundary in zip(matrices, self._boundaries, strict=True)
        ]
        self._model = self._describe(weights, threads or torch.get_num_threads())

    def prefill(self, slot: int, token_ids: Sequence[int]) -> None:
        """See `Executor.prefill`. Raises `EngineError` for a prompt of no or too many tokens."""
        count = len(token_ids)
        if not 1 <= count <= self.max_len:
            raise EngineError(f"prompt of {count} tokens: expected 1 to {self.max_len}")
        rows = StepRows([slot] * count, range(count), token_ids)
        last = len(self._spans) - 1
        self._advance(last, rows, (0, self.architecture.layers), _NO_ROWS)

    def segment(self, index: int, rows: StepRows) -> None:
        """See `Executor.segment`."""
        self._advance(index, rows, self._spans[index], _NO_ROWS)

    def exit_head(self, index: int, rows: StepRows) -> tuple[list[int], list[float]]:
        """See `Executor.exit_head`."""
        return self._advance(index, rows, (0, 0), np.arange(len(rows), dtype=np.int32))

    def greedy(self, rows: StepRows) -> list[int]:
        """See `Executor.greedy`."""
        return self.exit_head(len(self.exits), rows)[0]

    def advance(self, index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
        """See `Executor.advance`."""
        return self._advance(index, rows, self._spans[index], wanted)

    def logits(self, rows: StepRows) -> Tensor:
        """See `Executor.logits`."""
        head = self._heads[-1]
        found = torch.empty(len(rows), head.vocabulary, dtype=torch.float32)
        for start in range(0, len(rows), MOST_ROWS):
            part = self._part(rows, start)
            head.count, head.rows = self._rows.count, _ALL_ROWS.ctypes.data
            self._library.head_logits(
                self._at, part, ctypes.addressof(head), found[start:].data_ptr()
            )
        return found

    def close(self) -> None:
        """Let go of the weights and the cache."""
        del self._model, self._at
        for held in (self._kept, self._heads, self._boundaries):
            held.clear()

    def _advance(
        self, index: int, rows: StepRows, span: tuple[int, int], wanted: Int32
    ) -> tuple[list[int], list[float]]:
        """Layers of `span` into boundary `index` + 1, then that boundary's head on the rows whose
        numbers are `wanted` (ascending), in calls of at most `MOST_ROWS` rows."""
        source = self._at_boundary[index - 1] if index and span[0] else None
        target, head = self._at_boundary[index], self._heads[index]
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
            self._library.advance(
                *(self._at, self._part(rows, start), *span, source, target, ctypes.addressof(head))
            )
            if asked:
                tokens += self._tokens[:asked]
                confidences += self._confidences[:asked]
        shortlist = self._token_ids[index] if index < len(self.exits) else None
        if shortlist is not None:
            tokens = [shortlist[token] for token in tokens]
        return tokens, confidences

    def _part(self, rows: StepRows, start: int) -> int:
        """Where up to `MOST_ROWS` rows from `start` are described; the next call overwrites it."""
        count, at = len(rows), rows.table.ctypes.data + 4 * start
        part = self._rows
        part.count = min(MOST_ROWS, count - start)
        part.slots, part.positions, part.tokens = at, at + 4 * count, at + 8 * count
        return self._at_rows

    def _describe(self, weights: Weights, threads: int) -> native.CModel:
        shape = self.architecture
        frequencies = torch.tensor(shape.inverse_frequencies, dtype=torch.float32)
        angles = torch.outer(torch.arange(self.max_len, dtype=torch.float32), frequencies)
        tables = (angles.cos() * shape.rope_factor, angles.sin() * shape.rope_factor)
        layers = (native.CLayer * shape.layers)(*(self._layer(layer) for layer in weights.layers))
        model = native.CModel(
            DTYPES[self._dtype],
            *(shape.width, shape.feed_forward, shape.heads, shape.kv_heads, shape.head_dim),
            *(-(-self.max_len // POSITIONS) * POSITIONS, RING, threads, shape.epsilon),
            self._keep(weights.embedding, self._dtype),
            *(self._keep(t) for t in (weights.norm, *tables)),
            layers,
        )
        self._at = ctypes.addressof(model)
        shared, own = ctypes.c_int64(), ctypes.c_int64()
        self._library.scratch_bytes(
            self._at, MOST_ROWS, ctypes.addressof(shared), ctypes.addressof(own)
        )
        model.shared, model.own_bytes = self._scratch(shared.value), own.value
        model.own = self._scratch(own.value * threads)
        return model

    def _layer(self, layer: LayerWeights) -> native.CLayer:
        shape = self.architecture
        gains = (layer.input_norm, layer.post_norm, layer.qkv_bias, layer.q_norm, layer.k_norm)
        pairs = layer.gate_up.view(2, -1, LANES, shape.width).transpose(0, 1).flatten(0, 2)
        length = -(-self.max_len // POSITIONS) * POSITIONS
        size = (self.slots + 1) * shape.kv_heads * length * shape.head_dim * self._dtype.itemsize
        return native.CLayer(
            *(self._keep(gain) for gain in gains),
            *(self._packed(matrix) for matrix in (layer.qkv, layer.out, pairs, layer.down)),
            *(self._scratch(size) for _ in ("keys", "values")),
        )

    def _head(self, matrix: Tensor, boundary: Hidden) -> native.CHead:
        size = self._library.parts_floats(MOST_ROWS, len(matrix))
        return native.CHead(
            *(self._packed(matrix), len(matrix), boundary.ctypes.data, self._scratch(4 * size)),
            *(0, None, ctypes.addressof(self._tokens), ctypes.addressof(self._confidences)),
        )

    def _packed(self, matrix: Tensor) -> int:
        """Where the matrix now lies as the kernels read it."""
        outputs, inputs = matrix.shape
        source = matrix.detach().to(self._dtype).contiguous()
        packed = self._scratch(-(-outputs // LANES) * LANES * inputs * self._dtype.itemsize)
        self._library.pack(DTYPES[self._dtype], source.data_ptr(), outputs, inputs, packed)
        return packed

    def _keep(self, tensor: Tensor | None, dtype: torch.dtype = torch.float32) -> int | None:
        """Where a tensor's numbers lie, kept alive with the executor."""
        if tensor is None:
            return None
        kept = tensor.detach().to(dtype).contiguous()
        self._kept.append(kept)
        return kept.data_ptr()

    def _scratch(self, size: int) -> int:
        memory = np.empty(size + 64, np.uint8)
        self._kept.append(memory)
        return int(-(-memory.ctypes.data // 64) * 64)
