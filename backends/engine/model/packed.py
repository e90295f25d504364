"""Matrices and models as the C++ kernels read them: packed once, straight from the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from backends.engine.model.architecture import Architecture, EngineError
from backends.engine.model.checkpoint import BLOCK, Checkpoint
from backends.engine.model.memory import KeptMemory, tensor_of
from backends.engine.model.weights import (
    LayerParts,
    LayerWeights,
    ModelParts,
    PlainTensors,
    Weights,
    read_parts,
)
from backends.kernels.cpu import native

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
LANES = BLOCK
"""Outputs that lie side by side in a packed matrix."""
PACKED_ROWS = 512
"""Rows of a gate, and of its up, that are arranged anew at a time."""


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix in the layout of `packed` in products.h; rows are read back by number or slice."""

    numbers: Tensor
    """One after another, padded to a multiple of 16 outputs, from a cache line on."""
    shape: tuple[int, int]
    """Outputs and inputs."""

    @classmethod
    def allocate(cls, outputs: int, inputs: int, dtype: torch.dtype) -> PackedMatrix:
        """To be filled with `write`."""
        padded = -(-outputs // LANES) * LANES
        return cls(tensor_of((padded * inputs,), dtype), (outputs, inputs))

    @classmethod
    def of(cls, matrix: Tensor, dtype: torch.dtype) -> PackedMatrix:
        """A tensor (outputs, inputs), packed in `dtype`."""
        outputs, inputs = matrix.shape
        packed = cls.allocate(outputs, inputs, dtype)
        packed.write(0, matrix.detach().to(dtype))
        return packed

    @property
    def dtype(self) -> torch.dtype:
        """Of the numbers."""
        return self.numbers.dtype

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return self.numbers.device

    @property
    def address(self) -> int:
        """Where the kernels find it, as long as this object lives."""
        return self.numbers.data_ptr()

    def __len__(self) -> int:
        return self.shape[0]

    def write(self, start: int, rows: Tensor) -> None:
        """Pack rows, in the matrix' dtype, that begin at one whose number is a multiple of 16."""
        assert start % LANES == 0
        assert rows.dtype == self.dtype
        count, inputs = rows.shape
        source = rows.contiguous()
        target = self.address + start * inputs * self.dtype.itemsize
        native.library().pack(DTYPES[self.dtype], source.data_ptr(), count, inputs, target)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """The named rows, as a tensor of their own."""
        group = native.library().group(DTYPES[self.dtype])
        blocks = self.numbers.view(-1, self.shape[1] // group, LANES, group)
        wanted = torch.arange(len(self))[rows]
        return blocks[wanted // LANES, :, wanted % LANES].flatten(1)


PackedLayer = LayerParts[PackedMatrix]
PackedWeights = ModelParts[PackedMatrix]
"""A model for the C++ kernels; executors share it."""


def load_packed(
    directory: Path,
    architecture: Architecture,
    dtype: torch.dtype,
    layers: range | None = None,
) -> PackedWeights:
    """Read a checkpoint's weights, of some `layers` or all, into packed matrices; no second copy of
    one is ever made.

    The arguments and errors are those of `load_weights`, those of `check_sizes` come on top.
    """
    check_sizes(architecture)
    checkpoint = Checkpoint.open(directory)
    made = _Packing(checkpoint, dtype)
    return read_parts(checkpoint, architecture, made, PlainTensors(checkpoint, dtype), layers)


def packed_weights(weights: Weights | PackedWeights) -> PackedWeights:
    """A packed model itself; one of tensors packed beside them, each once."""
    if isinstance(weights.embedding, PackedMatrix):
        return weights
    dtype = weights.embedding.dtype
    embedding = PackedMatrix.of(weights.embedding, dtype)
    head = embedding
    if weights.head is not weights.embedding:
        head = PackedMatrix.of(weights.head, dtype)
    layers = tuple(packed_layer(layer, dtype) for layer in weights.layers)
    return ModelParts(embedding, layers, weights.norm, head, weights.epsilon)


@dataclass(frozen=True, slots=True)
class Packer:
    """Says where a matrix lies as the kernels read it: packed if it is not, and kept alive."""

    memory: KeptMemory
    dtype: torch.dtype

    def __call__(self, matrix: Tensor | PackedMatrix) -> int:
        """Its address."""
        if isinstance(matrix, Tensor):
            matrix = PackedMatrix.of(matrix, self.dtype)
        self.memory.hold(matrix.numbers)
        return matrix.address


def check_sizes(architecture: Architecture) -> None:
    """Raise `EngineError` for a width (inner, or of a head) that is no multiple of 16."""
    for name in ("width", "feed_forward", "head_dim"):
        if (size := getattr(architecture, name)) % LANES:
            raise EngineError(f"{name} {size}: the native kernels need a multiple of {LANES}")


def packed_layer(layer: LayerWeights, dtype: torch.dtype) -> PackedLayer:
    """A layer of tensors, packed beside them."""
    return LayerParts(
        input_norm=layer.input_norm,
        qkv=PackedMatrix.of(layer.qkv, dtype),
        qkv_bias=layer.qkv_bias,
        q_norm=layer.q_norm,
        k_norm=layer.k_norm,
        out=PackedMatrix.of(layer.out, dtype),
        post_norm=layer.post_norm,
        gate_up=_paired(len(layer.gate_up), len(layer.input_norm), dtype, _halves(layer.gate_up)),
        down=PackedMatrix.of(layer.down, dtype),
    )


def _halves(gate_up: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    gate, up = (torch.split(half, PACKED_ROWS) for half in gate_up.chunk(2))
    for index, (one, other) in enumerate(zip(gate, up, strict=True)):
        yield index * PACKED_ROWS, one, other


def _paired(
    rows: int, inputs: int, dtype: torch.dtype, halves: Iterable[tuple[int, Tensor, Tensor]]
) -> PackedMatrix:
    """Blocks of 16 gates and of 16 ups by turns, so that a kernel has a pair at hand at once."""
    matrix = PackedMatrix.allocate(rows, inputs, dtype)
    turns = tensor_of((PACKED_ROWS // LANES, 2, LANES, inputs), dtype)
    for start, gate, up in halves:
        blocks = turns[: len(gate) // LANES]
        for place, half in enumerate((gate, up)):
            blocks[:, place] = half.view(-1, LANES, inputs)
        matrix.write(2 * start, blocks.flatten(0, 2))
    return matrix


@dataclass(frozen=True, slots=True)
class _Packing:
    """A `Maker` of packed matrices."""

    checkpoint: Checkpoint
    dtype: torch.dtype

    def stacked(self, *names: str) -> PackedMatrix:
        shapes = [self.checkpoint.tensors[name].shape for name in names]
        matrix = PackedMatrix.allocate(sum(rows for rows, _ in shapes), shapes[0][1], self.dtype)
        first = 0
        for name, (rows, _) in zip(names, shapes, strict=True):
            for start, piece in self.checkpoint.pieces(name, self.dtype):
                matrix.write(first + start, piece)
            first += rows
        return matrix

    def paired(self, gate: str, up: str) -> PackedMatrix:
        rows, inputs = self.checkpoint.tensors[gate].shape
        pieces = (self.checkpoint.pieces(name, self.dtype, PACKED_ROWS) for name in (gate, up))
        halves = ((start, one, other) for (start, one), (_, other) in zip(*pieces, strict=True))
        return _paired(2 * rows, inputs, self.dtype, halves)
