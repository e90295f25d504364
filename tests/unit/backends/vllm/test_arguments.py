"""The `vllm` backend's options, checked before any engine is started or even imported."""

from __future__ import annotations

import importlib.util
import math
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from backends import check_options
from backends.vllm import arguments as vllm_arguments
from backends.vllm import sources
from backends.vllm.backend import VllmBackend
from harness.core.errors import UserError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vllm is not installed"
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": {"max_num_batched_token": 1}}, "did you mean 'max_num_batched_tokens'?"),
        ({"engine": {"foo": 1}}, "vLLM has no argument 'foo': nearest are "),
        ({"engine": {1: 2}}, "vLLM has no argument '1': nearest are "),
        ({"engine": {"trust_remote_code": True}}, "code from a checkpoint is never run"),
        ({"engine": {"max_num_seqs": 4}}, "max_num_seqs: an option of its own"),
        ({"engine": []}, "option 'engine': expected dict"),
        ({"max_num_seqs": 0}, "at least 1"),
        ({"max_model_len": "4k"}, "expected int"),
        ({"kv_cache_gib": 0}, "option 'kv_cache_gib': expected at least 1e-06, got 0"),
        ({"kv_cache_gib": math.inf}, "option 'kv_cache_gib': expected at most 1e+06, got inf"),
        ({"kv_cache_gib": math.nan}, "option 'kv_cache_gib': expected at least 1e-06, got nan"),
        ({"prefix_cachin": True}, "did you mean 'prefix_caching'?"),
    ],
)
def test_bad_options_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_options("vllm", options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_good_options_pass_without_importing_vllm() -> None:
    before = "vllm" in sys.modules
    check_options("vllm", {"engine": {"block_size": 32, "max_num_batched_tokens": 512}})
    assert ("vllm" in sys.modules) == before


@pytest.mark.parametrize(
    "name",
    [
        "model", "dtype", "max_model_len", "max_num_seqs", "enforce_eager", "seed", "tokenizer",
        "enable_prefix_caching", "kv_cache_memory_bytes", "skip_tokenizer_init",
        "generation_config", "override_generation_config", "disable_log_stats",
        "trust_remote_code", "stream_interval", "runner", "convert", "max_logprobs",
        "logits_processors",
    ],
)  # fmt: skip
def test_what_the_experiment_decides_may_not_be_passed_through(name: str) -> None:
    """It would reach vLLM behind the back of the trial's key."""
    with pytest.raises(UserError, match=f"engine: {name}: "):
        check_options("vllm", {"engine": {name: 1}})


@pytest.mark.parametrize("backend", ["vllm", "vllm-speculative", "vllm-early-exit"])
def test_engines_that_wait_for_others_are_refused(backend: str) -> None:
    """vLLM's in-process client starts one; it would wait for the others for ever."""
    known = sources.fields("engine/arg_utils.py", "EngineArgs")
    parallel = {name for name in known if name.startswith("data_parallel_")}
    assert len(parallel) >= 10
    for name in (*sorted(parallel), "nnodes"):
        with pytest.raises(UserError, match=f"engine: {name}: one engine in one process; use the"):
            check_options(backend, {"engine": {name: 2}})


def arguments(monkeypatch: pytest.MonkeyPatch, *, is_cpu: bool, **options: Any) -> dict[str, Any]:
    """The engine's arguments on a platform that is made up."""
    platforms = ModuleType("vllm.platforms")
    platforms.__dict__["current_platform"] = SimpleNamespace(is_cpu=lambda: is_cpu)
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)
    monkeypatch.setenv("VLLM_USE_AOT_COMPILE", "0")
    defaults = {name: option.default for name, option in VllmBackend.OPTIONS.items()}
    settings = defaults | {"compiled_norm": False} | options
    return vllm_arguments.engine_arguments(settings, Path("model"), "bfloat16")


def test_on_a_cpu_it_is_eager_with_half_a_gibibyte_of_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = arguments(monkeypatch, is_cpu=True)
    assert (found["enforce_eager"], found["kv_cache_memory_bytes"]) == (True, 2**29)
    found = arguments(monkeypatch, is_cpu=True, enforce_eager=False, kv_cache_gib=2.0)
    assert (found["enforce_eager"], found["kv_cache_memory_bytes"]) == (False, 2**31)


def test_on_a_gpu_vllm_chooses_what_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    found = arguments(monkeypatch, is_cpu=False)
    assert (found["enforce_eager"], found["kv_cache_memory_bytes"]) == (False, None)
    found = arguments(monkeypatch, is_cpu=False, engine={"block_size": 32}, seed=5)
    assert (found["block_size"], found["seed"], found["dtype"]) == (32, 5, "bfloat16")


def test_the_user_may_see_more_but_no_calls_home_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*vllm_arguments.ENVIRONMENT, *vllm_arguments.QUIET):
        monkeypatch.setenv(name, "users")
    vllm_arguments.set_environment(None)
    assert {name: os.environ[name] for name in vllm_arguments.QUIET} == dict.fromkeys(
        vllm_arguments.QUIET, "users"
    )
    assert os.environ["VLLM_NO_USAGE_STATS"] == os.environ["HF_HUB_OFFLINE"] == "1"
    for name in vllm_arguments.QUIET:
        monkeypatch.delenv(name)
    vllm_arguments.set_environment(None)
    assert os.environ["VLLM_LOGGING_LEVEL"] == "ERROR"


def test_a_variable_does_not_decide_the_cache_in_the_place_of_an_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM takes it before its arguments."""
    for name in (*vllm_arguments.ENVIRONMENT, *vllm_arguments.QUIET):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "40")
    vllm_arguments.set_environment(None)
    assert "VLLM_CPU_KVCACHE_SPACE" not in os.environ


@pytest.mark.parametrize(("asynchronous", "second"), [(True, True), (False, False), (None, None)])
def test_what_schedules_and_runs_a_step_is_told(
    asynchronous: bool | None, second: bool | None
) -> None:
    config = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=8, enforce_eager=True, dtype="torch.bfloat16"),
        scheduler_config=SimpleNamespace(
            max_num_seqs=2,
            async_scheduling=asynchronous,
            max_num_batched_tokens=2048,
            enable_chunked_prefill=True,
        ),
        cache_config=SimpleNamespace(num_gpu_blocks=3, block_size=16, kv_cache_memory_bytes=2**29),
        compilation_config=SimpleNamespace(
            mode=None, cudagraph_mode=None, static_forward_context={}
        ),
        attention_config=SimpleNamespace(backend=None),
        **({} if second is None else {"use_v2_model_runner": second}),
    )
    found = vllm_arguments.effective({}, SimpleNamespace(vllm_config=config))
    assert found["async_scheduling"] is bool(asynchronous)
    assert found["model_runner"] == ("V2" if second else "V1")
    assert (found["kv_cache_gib"], found["max_num_batched_tokens"]) == (0.5, 2048)
