"""Random weights, written as safetensors: equal bit for bit on every machine.

Each tensor has a stream of its own, numpy's PCG64 seeded by the tensor's name, whose raw 64-bit
numbers numpy keeps the same for good. Sixteen of its bits choose one of the 65,536 quantiles of a
normal distribution, from a table in bfloat16: no floating-point arithmetic is done on the numbers,
so no library and no processor rounds them in its own way. A tensor's numbers depend on its name,
its size and the model's whole depth alone: the first layers of a model are the same without the
rest.

The deviations keep hidden states in the range of trained models at every depth and width: 1 over
the square root of the inputs, so that a norm's output of RMS 1 gives projections of RMS 1, and a
further 1 over the square root of 2 x layers for the two that write to the residual stream, as in
GPT-2 (Radford et al., 2019); embedding and head 0.02 (transformers' initializer_range), norms 1.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from backends.checkpoints.shapes.sizes import BF16_BYTES, Sizes
from backends.engine.model.dimensions import tensor_shapes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEED = "decodebench shape 1"
"""Another text gives other numbers."""
EMBEDDING_DEVIATION = 0.02
ALIGNMENT = 64
"""Bytes: where the tensors of a file begin. Those after the first follow without a gap, as the
format wants it, and stay aligned where widths are multiples of 32."""
SHARD_BYTES = 4 * 2**30
CHUNK_VALUES = 2**22
QUANTILES = 2**16
ONE = 0x3F80
"""1 in bfloat16."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a checkpoint. `deviation` None: ones."""

    name: str
    shape: tuple[int, ...]
    deviation: float | None

    @property
    def count(self) -> int:
        """Numbers in it."""
        return functools.reduce(int.__mul__, self.shape)

    @property
    def bytes(self) -> int:
        """In bfloat16."""
        return BF16_BYTES * self.count


def tensors(sizes: Sizes, depth: int) -> Iterator[Tensor]:
    """The tensors of a checkpoint in the order in which they are written. `depth`: layers of the
    whole model, of which `sizes` may have the first only."""
    for name, shape in tensor_shapes(sizes):
        yield Tensor(name, shape, _deviation(name, shape, depth))


def _deviation(name: str, shape: tuple[int, ...], depth: int) -> float | None:
    if name.endswith("norm.weight"):
        return None
    if not name.endswith("_proj.weight"):  # embedding, head and biases
        return EMBEDDING_DEVIATION
    to_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
    share: float = 1 / (2 * depth) if to_residual else 1.0
    deviation: float = (share / shape[1]) ** 0.5
    return deviation


def values(tensor: Tensor) -> Iterator[NDArray[np.uint16]]:
    """The bits of a tensor's bfloat16 numbers, in pieces of up to `CHUNK_VALUES`."""
    import numpy as np

    left = tensor.count
    if tensor.deviation is None:
        yield np.full(left, ONE, np.uint16)
        return
    seed = int.from_bytes(hashlib.sha256(f"{SEED} {tensor.name}".encode()).digest()[:16], "big")
    stream, table = np.random.PCG64(seed), _table(tensor.deviation)
    while left > 0:
        count = min(left, CHUNK_VALUES)
        raw = stream.random_raw(-(-count // 4)).astype("<u8", copy=False)
        yield np.take(table, raw.view("<u2")[:count])
        left -= count


@functools.cache
def _quantiles() -> NDArray[np.float64]:
    import numpy as np

    upper = [NormalDist().inv_cdf(0.5 + (k + 0.5) / QUANTILES) for k in range(QUANTILES // 2)]
    return np.array([*(-q for q in reversed(upper)), *upper])


def _table(deviation: float) -> NDArray[np.uint16]:
    """The quantiles of a normal distribution in bfloat16, rounded to nearest even."""
    import numpy as np

    bits = (_quantiles() * deviation).astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def write_weights(
    directory: Path, wanted: Iterable[Tensor], tell: Callable[[int], object]
) -> dict[str, str]:
    """Write these tensors as safetensors files, with their index where there are several, and
    return the sha256 of each by name. Each is on the disk when this returns. `tell` is called with
    the bytes written so far. Needs some MiB of memory. Raises `OSError`."""
    shards = _shards(wanted)
    names = {_file_name(index, len(shards)): shard for index, shard in enumerate(shards, start=1)}
    if len(shards) > 1:
        _write_index(directory, names)
    written, digests = 0, {}
    for name, shard in names.items():
        digests[name] = _write_file(directory / name, shard, written, tell)
        written += sum(tensor.bytes for tensor in shard)
    return digests


def _shards(found: Iterable[Tensor]) -> list[list[Tensor]]:
    shards: list[list[Tensor]] = [[]]
    for tensor in found:
        if shards[-1] and sum(t.bytes for t in shards[-1]) + tensor.bytes > SHARD_BYTES:
            shards.append([])
        shards[-1].append(tensor)
    return shards


def _file_name(index: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{index:05}-of-{count:05}.safetensors"


def _write_index(directory: Path, names: Mapping[str, Sequence[Tensor]]) -> None:
    total = sum(tensor.bytes for shard in names.values() for tensor in shard)
    places = {tensor.name: name for name, shard in names.items() for tensor in shard}
    content = {"metadata": {"total_size": total}, "weight_map": places}
    with (directory / "model.safetensors.index.json").open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())


def _write_file(
    path: Path, shard: Sequence[Tensor], written: int, tell: Callable[[int], object]
) -> str:
    state = hashlib.sha256()
    with path.open("wb") as file:
        header = _header(shard)
        state.update(header)
        file.write(header)
        for tensor in shard:
            for bits in values(tensor):
                data = bits.astype("<u2", copy=False).data
                state.update(data)
                file.write(data)
                written += bits.nbytes
                tell(written)
        file.flush()
        os.fsync(file.fileno())
    return state.hexdigest()


def _header(shard: Sequence[Tensor]) -> bytes:
    content: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in shard:
        begin, end = end, end + tensor.bytes
        content[tensor.name] = {
            "dtype": "BF16",
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
