"""The fill by one kernel on vLLM's caches (see the child); the kernel itself: tests/kernels."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]


def test_writes_what_vllms_calls_would_and_follows_the_caches() -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("paged_fill_child.py"))],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["on a CPU"] == "None"
    for name in ("first", "moved"):
        assert found[name] < 1e-6
        assert found[f"{name} untouched"]
    assert max(found["packed copies"], found["one weight"]) < 1e-4
