"""A checkpoint's safetensors files: are they whole, and are their numbers numbers?

A file is 8 bytes (the header's length, little-endian), the header (JSON: dtype, shape and place of
each tensor), then the tensors, one behind the other. Read here with the standard library and numpy:
no engine has to be loaded to find a broken download.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from harness.core.errors import UserError

EXPONENTS = {"F64": 0x7FF0 << 48, "F32": 0x7F80 << 16, "BF16": 0x7F80, "F16": 0x7C00}
"""The bits of a dtype that are all set in NaN and infinity and in no other number."""
WIDTHS = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}
CHUNK_BYTES = 2**20


class _Tensor(NamedTuple):
    """`begin` and `end` in bytes from the start of the file."""

    begin: int
    end: int
    dtype: str
    name: str


def check_whole(path: Path) -> None:
    """Catch a missing shard, a broken download and a Git LFS pointer before an engine does. Reads
    the header only. Raises `UserError`."""
    if not path.is_file():
        raise UserError(f"{path}: missing, though the index names it")
    size = path.stat().st_size
    with path.open("rb") as file:
        begin, tensors = _header(path, file)
    whole = tensors[-1].end if tensors else begin
    if size != whole:
        raise UserError(f"{path}: cut short or spoilt: {size} bytes, expected {whole}")


def tensor_names(path: Path) -> list[str]:
    """What a file holds, by its header. Raises `UserError`."""
    with path.open("rb") as file:
        return [tensor.name for tensor in _header(path, file)[1]]


def digest(path: Path) -> str:
    """sha256 of the file, read once, with a look at every weight on the way.

    Raises `UserError` for a tensor that holds NaN or infinity: an engine would load it, and measure
    how fast nonsense comes out. What is no safetensors file is left to `check_whole`, since a
    served model needs none here.
    """
    state = hashlib.sha256()
    with path.open("rb") as file:
        try:
            begin, tensors = _header(path, file)
        except UserError:
            begin, tensors = 0, []
        file.seek(0)
        state.update(file.read(begin))
        for tensor in tensors:
            for data in _chunks(file, tensor.end - tensor.begin):
                state.update(data)
                if not _finite(data, tensor.dtype):
                    raise UserError(
                        f"{path}: tensor '{tensor.name}' holds NaN or infinity; "
                        "expected finite weights"
                    )
        for data in _chunks(file, path.stat().st_size):
            state.update(data)
    return state.hexdigest()


def _header(path: Path, file: BinaryIO) -> tuple[int, list[_Tensor]]:
    """Where the tensors begin, and the tensors in the order of the file, each behind the last."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= path.stat().st_size - 8:
        raise UserError(f"{path}: not a safetensors file, or cut short")
    place = start = 8 + length
    try:
        tensors = sorted(
            _Tensor(start + int(begin), start + int(end), told["dtype"], name)
            for name, told in json.loads(file.read(length)).items()
            if name != "__metadata__"
            for begin, end in [told["data_offsets"]]
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{path}: not a safetensors file: its header is broken") from None
    for tensor in tensors:
        if not place == tensor.begin <= tensor.end:
            raise UserError(f"{path}: not a safetensors file: tensor '{tensor.name}' is misplaced")
        place = tensor.end
    return start, tensors


def _chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (data := file.read(min(size, CHUNK_BYTES))):
        size -= len(data)
        yield data


def _finite(data: bytes, dtype: str) -> bool:
    """Integers and 8-bit floats are taken as they are."""
    import numpy as np

    if dtype not in EXPONENTS or len(data) % WIDTHS[dtype]:
        return True
    bits = np.frombuffer(data, f"<u{WIDTHS[dtype]}")
    # without the sign, bit patterns are in the order of magnitudes: infinity, then NaN, come last
    return not len(bits) or int((bits << 1).max()) < EXPONENTS[dtype] << 1
