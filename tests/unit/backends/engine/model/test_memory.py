"""Memory of the host: what is not written costs nothing."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from backends.engine.model.memory import ALIGNMENT, SPARSE, KeptMemory

STATM = Path("/proc/self/statm")
MIB = 1 << 20


def resident_mib() -> float:
    return int(STATM.read_text().split()[1]) * 4096 / MIB


@pytest.mark.skipif(not STATM.exists(), reason="only Linux tells")
def test_scratch_for_long_sequences_is_resident_where_it_is_written() -> None:
    kept, before = KeptMemory(), resident_mib()
    at = kept.scratch(2 * SPARSE)
    for offset in range(0, 2 * SPARSE, 2 * MIB):  # a page for each head, as short sequences have it
        ctypes.memset(at + offset, 1, 320)
    assert at % ALIGNMENT == 0
    assert resident_mib() - before < SPARSE / MIB / 4
