"""What measures the ceilings reads what it says it reads."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch

from backends.kernels import ceilings
from backends.kernels.cpu import native

STEP = 64 * 16 * 16
"""Bytes of one step of 16 streams."""


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("streams", [1, 4, 16])
@pytest.mark.parametrize("more", [0, 1, 37])
def test_every_line_is_read_once(threads: int, steps: int, streams: int, more: int) -> None:
    size = STEP * steps * threads + more * 64
    data = np.random.default_rng(7).integers(-(2**31), 2**31, size // 4, np.int32)
    found = native.library().read_all(data.ctypes.data, data.nbytes, threads, streams)
    assert found == np.bitwise_xor.reduce(data)
    data[-1] ^= 1
    assert native.library().read_all(data.ctypes.data, data.nbytes, threads, streams) == found ^ 1


def test_torch_reads_where_nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot() -> object:
        raise native.NativeUnavailableError("no compiler")

    monkeypatch.setattr(native, "library", cannot)
    name, read = ceilings._reader()
    data = np.ones(1000, np.int64)
    assert name == "torch"
    assert int(read(data.ctypes.data, data.nbytes, 1, 1)) == 1000  # type: ignore[call-overload]


def test_a_small_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "SIZES", (2**16, 2**18))
    monkeypatch.setattr(ceilings, "PRODUCT", 64)
    found = ceilings.measure()
    assert 1 in found.read_bytes_per_s
    assert all(set(sizes) == {2**16, 2**18} for sizes in found.read_bytes_per_s.values())
    assert found.read_bytes_per_s.keys() == found.bf16_flop_per_s.keys()


def test_products_are_of_the_dtype_that_is_multiplied_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A processor without bfloat16 takes minutes for a large product of it."""
    slow: list[torch.dtype] = []
    multiplied: list[torch.dtype] = []

    def mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        assert not (a.dtype in slow and len(a) > ceilings.TRIED)
        multiplied.append(a.dtype)
        time.sleep(0.01 if a.dtype in slow else 0.0)
        return b

    monkeypatch.setattr(ceilings, "SIZES", (2**16,))
    monkeypatch.setattr(ceilings, "PRODUCT", 2 * ceilings.TRIED)
    monkeypatch.setattr(torch, "mm", mm)
    for other, fast in ((torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)):
        slow[:] = [other]
        assert 1 in ceilings._cpu().bf16_flop_per_s
        assert multiplied[-1] == fast


def test_a_cache_whose_size_is_not_told_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on virtual machines with ARM cores, after all that was measured."""
    told = [("1", "Data", "64K"), ("1", "Instruction", "64K"), ("2", "Unified", None)]
    for number, (level, kind, size) in enumerate([*told, ("3", "Unified", "32768K")]):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        (folder / "level").write_text(f"{level}\n")
        (folder / "type").write_text(f"{kind}\n")
        if size is not None:
            (folder / "size").write_text(f"{size}\n")
    monkeypatch.setattr(ceilings, "CACHES", tmp_path)
    assert ceilings._caches() == {"L1d": 64 * 1024, "L3": 32 * 2**20}
    monkeypatch.setattr(ceilings, "CACHES", tmp_path / "nothing")
    assert ceilings._caches() == {}
