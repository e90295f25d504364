"""How vLLM's engine is loaded, and what becomes of its refusals, with stand-ins for its classes."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends.vllm import arguments as vllm_arguments
from backends.vllm.arguments import load_engine
from harness.core.errors import UserError
from tests.support.tiny_llama import CONFIG, write_tiny_llama

torch = pytest.importorskip("torch")
SERVED = "OPENAI_API_SERVER"
PLACE = " in vllm.layers.embedding.weight_loader"


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Loads an engine of these arguments; `error` is what vLLM says to them. Gives what it was
    told: the context of its arguments, and that of its engine."""
    told: dict[str, Any] = {}
    raised: list[Exception] = []
    model = SimpleNamespace(runner_type="generate", architectures=["LlamaForCausalLM"])

    def create_engine_config(context: Any = None, **_: Any) -> Any:
        told["arguments"] = context
        return SimpleNamespace(model_config=model)

    def from_vllm_config(config: Any, usage_context: Any = None, **_: Any) -> Any:
        if raised:
            names: dict[str, Any] = {"__name__": told["module"], "error": raised[0]}
            exec("def weight_loader():\n    raise error", names)
            names["weight_loader"]()
        told["engine"], told["frozen"] = usage_context, gc.get_freeze_count()
        return told

    def load(
        error: Exception | None = None,
        runner: str = "generate",
        module: str = "vllm.layers.embedding",
        **arguments: Any,
    ) -> Any:
        raised[:] = [] if error is None else [error]
        told["module"] = module
        model.runner_type = runner
        return load_engine("vllm", {"model": "nowhere", **arguments})

    monkeypatch.setattr(vllm_arguments, "allow_tiles", lambda: None)
    made = SimpleNamespace(create_engine_config=create_engine_config)
    for name, module in {
        "engine.arg_utils": SimpleNamespace(EngineArgs=lambda **_: made),
        "usage.usage_lib": SimpleNamespace(UsageContext=SimpleNamespace(OPENAI_API_SERVER=SERVED)),
        "v1.engine.llm_engine": SimpleNamespace(
            LLMEngine=SimpleNamespace(from_vllm_config=from_vllm_config)
        ),
    }.items():
        monkeypatch.setitem(sys.modules, f"vllm.{name}", module)
    return load


def test_the_libraries_are_no_garbage_while_vllm_loads(loads: Callable[..., Any]) -> None:
    """It collects five times meanwhile."""
    gc.unfreeze()
    assert loads()["frozen"] > 10_000


def test_what_is_left_open_is_as_in_a_server(loads: Callable[..., Any]) -> None:
    """Without a context vLLM reads prompts in batches of 2,048 on an H100, where its server takes
    8,192: what is measured here would be another configuration than behind `http`."""
    told = loads()
    assert (told["arguments"], told["engine"]) == (SERVED, SERVED)


def test_a_class_that_cannot_be_imported_is_the_users_mistake(loads: Callable[..., Any]) -> None:
    with pytest.raises(UserError) as caught:
        loads(ModuleNotFoundError("No module named 'nope'"), worker_cls="nope.X")
    said = "vLLM refused the model or its options: No module named 'nope'"
    assert str(caught.value) == f"backend 'vllm': {said}"


def test_a_model_that_does_not_generate_is_refused_before_it_loads(
    loads: Callable[..., Any],
) -> None:
    """vLLM loads it, and refuses each request."""
    with pytest.raises(UserError) as caught:
        loads(RuntimeError("was loaded"), runner="pooling", model="/m/reward")
    said = "/m/reward: vLLM takes it for a pooling model (architecture LlamaForCausalLM), which"
    assert str(caught.value).startswith(f"backend 'vllm': {said}")


def test_a_model_that_does_not_fit_its_configuration_is_refused_before_it_loads(
    loads: Callable[..., Any], tmp_path: Path
) -> None:
    write_tiny_llama(tmp_path, tokenizer=False, layers=1)
    loads(model=str(tmp_path))
    narrow = CONFIG | {"num_hidden_layers": 1, "intermediate_size": 256}
    (tmp_path / "config.json").write_text(json.dumps(narrow))
    with pytest.raises(UserError, match=r"gate_proj\.weight has shape"):
        loads(RuntimeError("was loaded"), model=str(tmp_path))


@pytest.mark.parametrize(
    ("estimated", "said"),
    [
        (
            "Based on the available memory, the estimated maximum model length is 896. ",
            "hold 896 tokens, and max_model_len is 1024; give about 0.005 GiB, or a smaller",
        ),
        ("", "hold fewer tokens, and max_model_len is 1024; give more, or a smaller"),
    ],
)
def test_a_cache_too_small_for_one_request_is_named_by_our_option(
    loads: Callable[..., Any], estimated: str, said: str
) -> None:
    """vLLM's advice, `gpu_memory_utilization`, decides nothing where the cache is given."""
    told = ValueError(
        "To serve at least one request with the model's max seq len (1024), (0.0 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (0.0 GiB). "
        f"{estimated}Try increasing `gpu_memory_utilization` (which also controls CPU memory on "
        "the CPU backend) or decreasing `max_model_len` when initializing the engine."
    )
    with pytest.raises(UserError) as caught:
        loads(told, kv_cache_memory_bytes=int(0.004 * 2**30))
    assert str(caught.value).startswith(f"backend 'vllm': option 'kv_cache_gib': 0.004 GiB {said}")
    with pytest.raises(UserError, match="vLLM refused the model or its options: To serve"):
        loads(told, kv_cache_memory_bytes=None)


def test_what_vllm_cannot_run_here_is_one_line(loads: Callable[..., Any]) -> None:
    told = RuntimeError("static_scaled_fp8_quant() expected at most 0 argument(s)\nmore")
    with pytest.raises(UserError) as caught:
        loads(told, quantization="fp8")
    said = "vLLM refused the model or its options: static_scaled_fp8_quant() expected at most 0"
    assert str(caught.value) == f"backend 'vllm': {said} argument(s)"
    with pytest.raises(UserError, match="needs CUDA"):
        loads(NotImplementedError("needs CUDA"))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            AssertionError(),
            f"AssertionError{PLACE}; the checkpoint's config.json may not fit its weights",
        ),
        (TypeError("'<' not supported"), f"'<' not supported{PLACE}"),
        (AssertionError("heads must divide"), "heads must divide"),
    ],
)
def test_an_error_that_says_little_is_told_with_its_place(
    loads: Callable[..., Any], told: Exception, said: str
) -> None:
    with pytest.raises(UserError) as caught:
        loads(told)
    assert str(caught.value) == f"backend 'vllm': vLLM refused the model or its options: {said}"


@pytest.mark.parametrize(
    "told",
    [
        torch.OutOfMemoryError("Tried to allocate 2.00 GiB"),
        torch.AcceleratorError("device-side assert triggered"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("Worker failed with error 'CUDA error: an illegal memory access'"),
        RuntimeError("NCCL error in: ProcessGroupNCCL.cpp:94"),
        RuntimeError("unable to write to file </torch_1_2>: No space left on device (28)"),
        RuntimeError("can't start new thread"),
    ],
    ids=lambda told: str(told)[:12],
)
def test_a_device_that_fails_is_no_mistake_of_the_user(
    loads: Callable[..., Any], told: RuntimeError
) -> None:
    with pytest.raises(RuntimeError) as caught:
        loads(told)
    assert caught.value is told


def test_a_rank_that_is_gone_is_no_mistake_of_the_user(loads: Callable[..., Any]) -> None:
    """Its end is told without a reason."""
    told = RuntimeError("cancelled")
    with pytest.raises(RuntimeError) as caught:
        loads(told, module="vllm.distributed.device_communicators.shm_broadcast")
    assert caught.value is told


def test_memory_that_others_hold_is_no_mistake_of_the_user(loads: Callable[..., Any]) -> None:
    """The sweep tries such an engine again, alone: what a `UserError` would rule out."""
    told = ValueError(
        "Free memory on device cuda:0 (60.0/80.0 GiB) on startup is less than desired GPU memory "
        "utilization (0.92, 73.6 GiB). Decrease GPU memory utilization or reduce GPU memory used "
        "by other processes."
    )
    with pytest.raises(ValueError, match="Free memory on device cuda:0") as caught:
        loads(told)
    assert caught.value is told
