"""The fill by one kernel on vLLM's caches (see the child); the kernel itself: tests/kernels."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.support.child import CHILDREN, run_child

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]


def test_writes_what_vllms_calls_would_and_follows_the_caches() -> None:
    script = CHILDREN / "paged_fill_child.py"
    found = json.loads(run_child(script, OMP_NUM_THREADS="1"))
    assert found["on a CPU"] == "None"
    for name in ("first", "moved"):
        assert found[name] < 1e-6
        assert found[f"{name} untouched"]
    assert max(found["packed copies"], found["one weight"]) < 1e-4
