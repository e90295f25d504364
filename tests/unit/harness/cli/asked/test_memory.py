"""Memory that is asked for beside the weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.cli.asked.memory import refuse_too_large
from harness.core.errors import UserError
from harness.core.nouns import Model
from harness.measure.machine import gpu, meters

LARGE = Model("llama-3.1-8b", dtype="bfloat16", shape=True)
SMALL = Model("0.1b", dtype="bfloat16", shape=True)
KV = {"kv_cache_gib": 8}
DRAFTS = ("speculative", {"replay": {"acceptance": 0.5}})
LAYERS = "fewer 'layers' need less"


@pytest.mark.parametrize(
    ("gpu_gib", "kv_gib", "engine"),
    [
        (48, 35, {"tensor_parallel_size": 2}),
        (48, 35, {"pipeline_parallel_size": 2}),
        (24, 8, {"quantization": "fp8"}),
        (24, 8, {"cpu_offload_gb": 8}),
    ],
)
def test_weights_that_are_not_whole_on_one_device_are_not_added_to_kv(
    gpu_gib: int, kv_gib: int, engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "memory_total", lambda: [gpu_gib * 2**30])
    refuse_too_large(LARGE, [("vllm", {"kv_cache_gib": kv_gib, "engine": engine})])
    for other in ({}, {"load_format": "dummy"}):
        with pytest.raises(UserError, match=rf" {kv_gib}\.0 GiB for KV \(backend 'vllm'"):
            refuse_too_large(LARGE, [("vllm", {"kv_cache_gib": kv_gib, "engine": other})])


def test_the_kv_of_a_few_requests_counts_once_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for on_gpu in (False, True):
        monkeypatch.setattr(gpu, "memory_total", lambda on=on_gpu: [2 * 2**30] * on)
        monkeypatch.setattr(meters, "total_memory", lambda: 2 * 2**30)
        refuse_too_large(SMALL, [("vllm", {})])
        asked = [("vllm", {"kv_cache_gib": 0.5})]
        if not on_gpu:
            refuse_too_large(SMALL, asked)
            asked = [("vllm", {"kv_cache_gib": 1})]
        with pytest.raises(UserError, match=r" 0\.5 GiB for KV"):
            refuse_too_large(SMALL, asked)


@pytest.mark.parametrize(
    ("model", "gib", "engine", "hint"),
    [
        (SMALL, 12, ("vllm", {"kv_cache_gib": 40}), "a smaller 'kv_cache_gib' needs less"),
        (LARGE, 20, ("vllm", KV), f"a smaller 'kv_cache_gib' or {LAYERS}"),
        (LARGE, 10, ("vllm", KV), LAYERS),
        (LARGE, 8, ("vllm", KV), f"a smaller 'kv_cache_gib' and {LAYERS}"),
        (LARGE, 18, DRAFTS, f"a smaller 'draft' or {LAYERS}"),
        (
            replace(LARGE, dtype="float32"),
            34,
            ("vllm", KV),
            f"'dtype: bfloat16' needs 22.5 GiB, a smaller 'kv_cache_gib' or {LAYERS}",
        ),
    ],
)
def test_what_is_to_be_made_smaller_is_what_helps(
    model: Model,
    gib: int,
    engine: tuple[str, dict[str, Any]],
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu, "memory_total", list)
    monkeypatch.setattr(meters, "total_memory", lambda: gib * 2**30)
    with pytest.raises(UserError) as refused:
        refuse_too_large(model, [engine])
    assert str(refused.value).endswith(f"GiB of memory; {hint}")
