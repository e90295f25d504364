"""The tensors of a checkpoint's safetensors files, read by pieces of rows.

A piece is read from the file into a small buffer, never mapped: pages of a mapped file count as
resident memory of the process, and a whole model of them would stand beside the weights.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from backends.engine.model.architecture import EngineError
from backends.engine.model.memory import tensor_of

READ = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
"""The dtypes of safetensors that hold plain weights; integers and eight-bit floats are codes."""
IGNORED = ".rotary_emb.inv_freq"
"""Old checkpoints store the rotary frequencies, which config.json decides."""
PIECE_BYTES = 1 << 22
BLOCK = 16
"""A piece holds a multiple of so many rows, but for the last of a tensor."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor's numbers lie."""

    path: Path
    offset: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder's tensors by name."""

    directory: Path
    tensors: dict[str, StoredTensor]

    @classmethod
    def open(cls, directory: Path) -> Checkpoint:
        """Read the headers of the files, which safetensors checks. Raises `EngineError`."""
        tensors: dict[str, StoredTensor] = {}
        for path in _files(directory):
            for name, stored in _header(path).items():
                if name in tensors:
                    raise EngineError(f"{path}: tensor {name} is in another file too")
                tensors[name] = stored
        return cls(directory, tensors)

    def check(self, shapes: dict[str, tuple[int, ...]], also: set[str]) -> None:
        """Compare names, dtypes and shapes with what is expected; reads no weights.

        Raises `EngineError` for the first tensor that is missing, quantised, of another shape, or
        neither expected nor one that may be there `also`.
        """
        for name, expected in shapes.items():
            if name not in self.tensors:
                raise EngineError(
                    f"{self.directory}: tensor {name} is missing; expected shape {list(expected)}"
                )
            stored = self.tensors[name]
            if stored.dtype not in READ:
                raise EngineError(
                    f"{self.directory}: tensor {name} is {stored.dtype}: quantised weights "
                    f"are not read; expected one of {', '.join(sorted(READ))}"
                )
            if stored.shape != expected:
                raise EngineError(
                    f"{self.directory}: tensor {name} has shape {list(stored.shape)}, expected "
                    f"{list(expected)}"
                )
        for name in sorted(self.tensors.keys() - shapes.keys() - also):
            if not name.endswith(IGNORED):
                raise EngineError(
                    f"{self.directory}: tensor {name} is unknown to the architecture of config.json"
                )

    def pieces(
        self, name: str, dtype: torch.dtype, at_once: int | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """The tensor's rows from the first to the last, cast and finite.

        Args:
            name: of a tensor that `check` found right.
            dtype: what the rows are cast to.
            at_once: rows of a piece; by default what `PIECE_BYTES` hold.

        Yields:
            The number of a piece's first row, and the piece, which the next one overwrites.

        Raises:
            EngineError: for NaN and infinite values, and values that `dtype` cannot hold.
        """
        space: Tensor | None = None
        for start, piece in self._stored(name, at_once):
            cast = piece
            if piece.dtype != dtype:
                space = tensor_of(piece.shape, dtype) if space is None else space
                cast = space[: len(piece)].copy_(piece)
            if not _finite(cast):
                held = "NaN or infinite values"
                if _finite(piece):
                    held = f"values too large for {str(dtype).removeprefix('torch.')}"
                raise EngineError(f"{self.directory}: tensor {name} holds {held}")
            yield start, cast

    def _stored(self, name: str, at_once: int | None) -> Iterator[tuple[int, Tensor]]:
        """The rows as they are stored."""
        stored = self.tensors[name]
        dtype, (rows, *inner) = READ[stored.dtype], stored.shape
        row_bytes = torch.Size(inner).numel() * dtype.itemsize
        at_once = at_once or max(1, PIECE_BYTES // row_bytes // BLOCK) * BLOCK
        buffer = tensor_of((min(rows, at_once), *inner), dtype)
        flat = buffer.view(torch.uint8).view(-1)
        try:
            with stored.path.open("rb", buffering=0) as file:
                file.seek(stored.offset)
                for start in range(0, rows, at_once):
                    piece = buffer[: rows - start]
                    view = memoryview(flat[: len(piece) * row_bytes].numpy().data)
                    while view:
                        count = file.readinto(view)
                        if not count:
                            raise EngineError(f"{stored.path}: ends inside tensor {name}")
                        view = view[count:]
                    yield start, piece
        except OSError as error:
            raise EngineError(f"{stored.path}: {error.strerror}") from None


def _finite(piece: Tensor) -> bool:
    """In one pass: both extremes are NaN where any number is."""
    return all(math.isfinite(extreme) for extreme in torch.aminmax(piece))


def _header(path: Path) -> dict[str, StoredTensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu"):
            pass  # sizes, names and offsets are right
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
    except FileNotFoundError:
        raise EngineError(f"{path}: missing") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise EngineError(f"{path}: not a safetensors file: {error}".splitlines()[0]) from None
    return {
        name: StoredTensor(
            path, 8 + size + told["data_offsets"][0], told["dtype"], tuple(told["shape"])
        )
        for name, told in header.items()
        if name != "__metadata__"
    }


def _files(directory: Path) -> list[Path]:
    """What the index names; else model.safetensors; else every safetensors file."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            return [directory / name for name in _in_index(index)]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise EngineError(f"{index}: expected a weight_map of tensors to files") from None
    if (single := directory / "model.safetensors").is_file():
        return [single]
    if found := sorted(directory.glob("*.safetensors")):
        return found
    raise EngineError(f"{directory}: no *.safetensors")


def _in_index(index: Path) -> list[str]:
    return sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
