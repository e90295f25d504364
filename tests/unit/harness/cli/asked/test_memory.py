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
HEADS = ("vllm-speculative", {**DRAFTS[1], "method": "medusa", "drafts": 3})
LAYERS = "fewer 'layers' need less"


SPREAD = [
    {"tensor_parallel_size": 2},
    {"pipeline_parallel_size": 2},
    {"cpu_offload_gb": 8},
    {"offload_group_size": 8, "offload_num_in_group": 4},
]
QUANTIZED: dict[str, Any] = {"quantization": "fp8"}
WHOLE: list[dict[str, Any]] = [
    {},
    {"load_format": "dummy"},
    {"tensor_parallel_size": 1, "cpu_offload_gb": 0},
    {"pipeline_parallel_size": "two", "quantization": None},
]


@pytest.mark.parametrize(("gpu_gib", "kv_gib"), [(48, 35), (10, None)])
@pytest.mark.parametrize("engine", [*SPREAD, QUANTIZED])
def test_weights_that_are_not_whole_on_one_gpu_are_not_counted(
    gpu_gib: int, kv_gib: int | None, engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "memory_total", lambda: [gpu_gib * 2**30])
    asked = ("vllm", {"kv_cache_gib": kv_gib, "engine": engine})
    refuse_too_large(LARGE, [asked])
    said = rf" {kv_gib}\.0 GiB for KV \(backend 'vllm'" if kv_gib else "15.0 GiB for its weights"
    for other in WHOLE:
        with pytest.raises(UserError, match=said):
            refuse_too_large(LARGE, [asked, ("vllm", {"kv_cache_gib": kv_gib, "engine": other})])


def test_a_cpus_memory_holds_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "memory_total", list)
    monkeypatch.setattr(meters, "total_memory", lambda: 10 * 2**30)
    refuse_too_large(LARGE, [("vllm", {"engine": QUANTIZED})])
    for engine in SPREAD:
        with pytest.raises(UserError, match="GiB for its weights"):
            refuse_too_large(LARGE, [("vllm", {"engine": engine})])


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
        (LARGE, 18, HEADS, f"fewer 'drafts' or {LAYERS}"),
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


def test_medusas_heads_have_a_vocabulary_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "memory_total", lambda: [20 * 2**30])
    backend, options = HEADS
    refuse_too_large(LARGE, [HEADS])
    refuse_too_large(LARGE, [(backend, {**options, "drafts": 6, "draft": "trained"})])
    gib = 6 * (4096 + 128256) * 4096 * 2 / 2**30
    with pytest.raises(
        UserError, match=rf"{gib:.1f} GiB for the heads of medusa \(backend"
    ) as told:
        refuse_too_large(LARGE, [(backend, {**options, "drafts": 6})])
    assert str(told.value).endswith("GiB of GPU memory; fewer 'drafts' or fewer 'layers' need less")
    monkeypatch.setattr(gpu, "memory_total", lambda: [17 * 2**30])
    with pytest.raises(UserError, match=r"; fewer 'drafts' or fewer 'layers' need less$"):
        refuse_too_large(LARGE, [HEADS])
