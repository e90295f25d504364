"""Safetensors files: broken ones are found, and so are weights that are no numbers."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.checkpoints import models, weight_files
from harness.core.errors import UserError
from tests.support.tiny_llama import write_tiny_llama


def write(path: Path, tensors: list[tuple[str, str, bytes]], **changes: Any) -> Path:
    """A file of (name, dtype, bytes); `changes` replace places in its header."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, dtype, data in tensors:
        header[name] = {"dtype": dtype, "shape": [], "data_offsets": [place, place + len(data)]}
        place += len(data)
    for name, offsets in changes.items():
        header[name]["data_offsets"] = offsets
    text = json.dumps(header).encode()
    content = b"".join(data for *_, data in tensors)
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    return path


def bfloat16(value: float) -> bytes:
    return struct.pack("<f", value)[2:]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


NOT_FINITE = [float("nan"), float("inf"), float("-inf"), -float("nan")]
PACK: dict[str, Callable[[float], bytes]] = {
    "BF16": bfloat16,
    "F16": lambda value: np.float16(value).tobytes(),
    "F32": lambda value: np.float32(value).tobytes(),
    "F64": lambda value: np.float64(value).tobytes(),
}


@pytest.mark.parametrize("dtype", PACK)
def test_one_bad_number_among_many_is_named_by_its_tensor(tmp_path: Path, dtype: str) -> None:
    pack = PACK[dtype]
    largest = {"BF16": 3e38, "F16": 65504.0, "F32": 3.4e38, "F64": 1.7e308}[dtype]
    fine = b"".join(pack(value) for value in (0.0, -0.0, 1.5, largest, -largest, 1e-7))
    path = tmp_path / "m.safetensors"
    assert weight_files.digest(write(path, [("a", dtype, fine), ("b", dtype, fine)])) == sha256(
        path
    )
    for value in NOT_FINITE:
        write(path, [("a", dtype, fine), ("b", dtype, fine + pack(value) + fine)])
        weight_files.check_whole(path)
        with pytest.raises(UserError, match=r"m\.safetensors: tensor 'b' holds NaN or infinity"):
            weight_files.digest(path)


def test_bad_numbers_are_found_across_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_files, "CHUNK_BYTES", 64)
    path = tmp_path / "m.safetensors"
    values = np.ones(1000, np.float32)
    assert weight_files.digest(write(path, [("a", "F32", values.tobytes())])) == sha256(path)
    values[777] = np.nan
    with pytest.raises(UserError, match="'a' holds NaN"):
        weight_files.digest(write(path, [("a", "F32", values.tobytes())]))


def test_what_cannot_hold_nan_is_taken_as_it_is(tmp_path: Path) -> None:
    ones = b"\xff" * 24
    tensors = [(kind, kind, ones) for kind in ("I64", "U8", "BOOL", "F8_E4M3")]
    path = write(tmp_path / "m.safetensors", tensors)
    assert weight_files.digest(path) == sha256(path)


@pytest.mark.parametrize("b", [[4, 8], [12, 16], [16, 12], [-4, 4]])
def test_overlaps_and_holes_are_refused(tmp_path: Path, b: list[int]) -> None:
    data = np.ones(2, np.float32).tobytes()
    path = write(tmp_path / "m.safetensors", [("a", "F32", data), ("b", "F32", data)], b=b)
    with pytest.raises(UserError, match="is misplaced"):
        weight_files.check_whole(path)


def test_a_pointer_in_place_of_weights_still_has_a_digest(tmp_path: Path) -> None:
    """A server's model needs its tokenizer here; its weights may be a Git LFS pointer."""
    path = tmp_path / "m.safetensors"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert weight_files.digest(path) == sha256(path)
    with pytest.raises(UserError, match="not a safetensors file, or cut short"):
        weight_files.check_whole(path)


def test_a_poisoned_checkpoint_is_refused_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write_tiny_llama(tmp_path / "model")
    whole = models.checksum(folder)
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-4:] = np.float32(np.nan).tobytes()
    (folder / "model.safetensors").write_bytes(content)
    for _ in range(2):
        with pytest.raises(UserError, match="holds NaN or infinity"):
            models.checksum(folder)
    content[-4:] = np.float32(0.5).tobytes()
    (folder / "model.safetensors").write_bytes(content)
    assert models.checksum(folder) != whole
