"""A process in which vLLM computes may use the processor's matrix tiles."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
ARCH_PRCTL, ARCH_GET_XCOMP_PERM, TILE_DATA = 158, 0x1022, 1 << 18
ASK = f"""
import ctypes, sys
if sys.argv[1] == "register":
    from backends.early_exit import register
    register()
else:
    from backends.vllm.tiles import allow_tiles
    allow_tiles()
found = ctypes.c_ulong()
ctypes.CDLL(None).syscall({ARCH_PRCTL}, {ARCH_GET_XCOMP_PERM}, ctypes.byref(found))
print(found.value)
"""


@pytest.mark.parametrize("way", ["allow_tiles", "register"])
def test_a_process_may_use_tiles_where_the_processor_has_them(way: str) -> None:
    torch = pytest.importorskip("torch")
    if platform.machine() != "x86_64" or not torch.cpu._is_amx_tile_supported():
        pytest.skip("this processor has no matrix tiles (AMX)")
    if way == "register":
        pytest.importorskip("vllm")
    command = [sys.executable, "-c", ASK, way]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) & TILE_DATA


def test_elsewhere_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from backends.vllm.tiles import allow_tiles

    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    asked: list[bool] = []
    monkeypatch.setattr(torch.cpu, "_init_amx", lambda: asked.append(True))
    allow_tiles()
    assert asked == []
