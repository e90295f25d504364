"""When a real vLLM makes trained exit heads: once, and before it sizes its cache."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.support.child import ROOT, run_child

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]


def test_heads_are_folded_once_and_before_the_cache_is_sized() -> None:
    """At 8B each is as large as the final head: what comes later finds no memory on a GPU."""
    child = ROOT / "tests" / "support" / "exits" / "loaded_heads_child.py"
    found = json.loads(run_child(child, timeout=600))
    assert found["opened"] == ["mixed 2", "mixed 4", "cache"]
    assert found["configured"] == ["xsum 2", "xsum 4"]
