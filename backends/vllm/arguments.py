"""What vLLM is started with: the process's environment and the engine's arguments.

Importing this module imports nothing of vLLM, so that an experiment's options are checked at once.
"""

from __future__ import annotations

import difflib
import gc
import math
import os
import re
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from backends.checkpoints import models
from backends.vllm import sources
from backends.vllm.shapes import check_shapes
from backends.vllm.tiles import allow_tiles
from harness.core.errors import UserError, nearest, of_memory
from harness.core.names import KV_CACHE_TOKENS

CPU_KV_CACHE_GIB = 0.5
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""One process, no calls home; the checkpoint is on disk by the time vLLM starts."""
CPU_CACHE = "VLLM_CPU_KVCACHE_SPACE"
"""vLLM takes it before its arguments: the option `kv_cache_gib` would be told and not be."""
QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Unless the user wants to see more."""
ONE_ENGINE = "one engine in one process; use the backend 'http'"
OWN_ARGUMENTS = {
    "model": "give 'model' in the experiment",
    "dtype": "give 'dtype' in the experiment",
    "max_model_len": "an option of its own",
    "max_num_seqs": "an option of its own",
    "enforce_eager": "an option of its own",
    "seed": "an option of its own",
    "enable_prefix_caching": "the option prefix_caching",
    "kv_cache_memory_bytes": "the option kv_cache_gib",
    "tokenizer": "decodebench hands vLLM token ids",
    "skip_tokenizer_init": "decodebench hands vLLM token ids",
    "generation_config": "sampling comes from the experiment",
    "override_generation_config": "sampling comes from the experiment",
    "disable_log_stats": "decodebench measures by itself",
    "trust_remote_code": "code from a checkpoint is never run",
    "logits_processors": "sampling comes from the experiment",
    "max_logprobs": "the option margins",
    **dict.fromkeys(("runner", "convert"), "answers are generated text"),
    "stream_interval": "each step's tokens are stamped",
    **{
        f"data_parallel_{name}": ONE_ENGINE
        for name in (
            "size", "rank", "start_rank", "size_local", "address", "rpc_port", "hybrid_lb",
            "external_lb", "multi_port_external_lb", "backend",
        )
    },
    **dict.fromkeys(("nnodes", "node_rank", "master_addr", "master_port"), ONE_ENGINE),
}  # fmt: skip
"""Engine arguments that may not be passed through, and why."""
SPECULATIVE_ARGUMENTS = ("speculative_config", "spec_method", "spec_model", "spec_tokens")
REFUSALS = (
    AssertionError,
    AttributeError,
    ImportError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What vLLM raises for arguments that it cannot take."""
GENERATES = "generate"
"""What vLLM's model runner does with a model that writes text."""
TAKEN = "Free memory on device"
"""Begins what vLLM raises on a GPU whose free memory is less than the share that it may use; asked
for also where the cache's size is given."""

_FAILED = re.compile(
    "CUDA error|No CUDA GPUs|CUDA driver|NCCL|No space left|can't start new thread"
)
"""What is said of a machine and its devices, not of what was asked of them."""
_RANKS = (
    "vllm.v1.executor.multiproc_executor",
    "vllm.distributed.device_communicators.shm_broadcast",
)
"""Modules in which a process hears of its ranks."""


def check_engine(
    backend: str,
    arguments: Mapping[str, Any],
    own: Mapping[str, str] = OWN_ARGUMENTS,
) -> None:
    """Raise `UserError` for an engine argument that vLLM lacks or that is not the user's: `own` has
    those by name, with the reason."""
    known = sources.fields("engine/arg_utils.py", "EngineArgs")
    _check_names(f"backend '{backend}': engine", arguments, own, known)


def check_speculative(where: str, fields: Mapping[str, Any], own: Mapping[str, str]) -> None:
    """Raise `UserError`, which begins with `where`, for a field that vLLM's SpeculativeConfig lacks
    or that is not the user's, as `own` says."""
    known = sources.fields("config/speculative.py", "SpeculativeConfig")
    _check_names(where, fields, own, known)


def _check_names(
    where: str, given: Iterable[str], own: Mapping[str, str], known: Iterable[str]
) -> None:
    for name in given:
        if name in own:
            raise UserError(f"{where}: {name}: {own[name]}")
        if name not in known:
            raise UserError(f"{where}: vLLM has no argument '{name}': {_nearest(str(name), known)}")


def _nearest(name: str, known: Iterable[str]) -> str:
    """As `nearest`, but of more names than anyone reads."""
    if difflib.get_close_matches(name, known, n=1):
        return nearest(name, known)
    return f"nearest are {', '.join(difflib.get_close_matches(name, known, n=3, cutoff=0.0))}"


def set_environment(threads: int | None) -> None:
    """What vLLM reads from the environment, in this process only. Call before importing vLLM."""
    os.environ.update(ENVIRONMENT)
    os.environ.pop(CPU_CACHE, None)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        import torch

        torch.set_num_threads(threads)


def engine_arguments(settings: Mapping[str, Any], model_dir: Path, dtype: str) -> dict[str, Any]:
    """Keyword arguments of vLLM's `EngineArgs`. On a CPU it runs eagerly unless told otherwise."""
    from vllm.platforms import current_platform

    eager, kv_cache_gib = settings["enforce_eager"], settings["kv_cache_gib"]
    if current_platform.is_cpu():
        # Reloading an ahead-of-time compiled model fails on the CPU and compiles again.
        os.environ.setdefault("VLLM_USE_AOT_COMPILE", "0")
        eager = True if eager is None else eager
        kv_cache_gib = CPU_KV_CACHE_GIB if kv_cache_gib is None else kv_cache_gib
    found = {
        "model": str(model_dir),
        "dtype": dtype,
        "seed": settings["seed"],
        "max_model_len": settings["max_model_len"],
        "max_num_seqs": settings["max_num_seqs"],
        "enforce_eager": bool(eager),
        "enable_prefix_caching": settings["prefix_caching"],
        "kv_cache_memory_bytes": None if kv_cache_gib is None else int(kv_cache_gib * 2**30),
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "generation_config": "vllm",
        **settings["engine"],
    }
    if settings["compiled_norm"] and eager and current_platform.is_cpu():
        from backends.vllm.norm import PRIORITY, register

        register()
        found["ir_op_priority"] = PRIORITY | found.get("ir_op_priority", {})
    return found


def load_engine(backend: str, arguments: Mapping[str, Any]) -> Any:
    """An `LLMEngine` in this process, where nothing else is said as `vllm serve` is started: of no
    such context vLLM takes smaller batches. Raises `UserError` with vLLM's reason when it refuses,
    and for a model that does not generate or fit its configuration; and what vLLM raised where a
    device failed, or others hold its memory: alone it may start.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.llm_engine import LLMEngine

    allow_tiles()
    gc.freeze()  # vLLM collects garbage five times while it loads, and takes this back at its end
    try:
        served = UsageContext.OPENAI_API_SERVER
        config = EngineArgs(**arguments).create_engine_config(served)
        if config.model_config.runner_type != GENERATES:
            raise UserError(
                f"backend '{backend}': {arguments['model']}: vLLM takes it for a "
                f"{config.model_config.runner_type} model (architecture "
                f"{', '.join(config.model_config.architectures)}), which classifies, scores or "
                "embeds; expected one that generates text"
            )
        check_shapes(arguments)
        return LLMEngine.from_vllm_config(config, served, disable_log_stats=True)
    except REFUSALS as error:
        if _of_the_device(error):
            raise
        given = arguments.get("kv_cache_memory_bytes")
        words = None if given is None else _small_cache(str(error), given / 2**30)
        words = words or f"vLLM refused the model or its options: {_reason(error)}"
        raise UserError(f"backend '{backend}': {words}") from error


def _of_the_device(error: Exception) -> bool:
    """Whether a device, its memory or a rank failed, which is nobody's mistake. torch has errors of
    its own for that; what ranks raise comes from vLLM's executor, with their text at the most."""
    if not isinstance(error, RuntimeError) or isinstance(error, NotImplementedError):
        return str(error).startswith(TAKEN)
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return (
        type(error).__module__.split(".")[0] == "torch"
        or of_memory(error)
        or _FAILED.search(str(error)) is not None
        or any(frame.f_globals.get("__name__") in _RANKS for frame in frames)
    )


def _small_cache(reason: str, gib: float) -> str | None:
    """What to say where vLLM's `reason` is that a cache of `gib` GiB is too small: it names an
    option that decides nothing where the cache is given. None for any other reason."""
    begins = f"option 'kv_cache_gib': {gib:.3g} GiB hold"
    if reason.startswith("No available memory for the cache blocks"):
        return f"{begins} no block of this model"
    if not (asked := re.search(r"max seq len \((\d+)\), \(([\d.]+) GiB", reason)):
        return None
    longest, needed = int(asked[1]), f"{asked[2]} GiB or more" if float(asked[2]) else "more"
    held = re.search(r"estimated maximum model length is (\d+)", reason)
    if held:  # vLLM's own figure has two digits after the point, which are 0.00 of a small model
        needed = f"about {math.ceil(1000 * gib * longest / int(held[1])) / 1000:g} GiB"
    return (
        f"{begins} {held[1] if held else 'fewer'} tokens, and max_model_len is {longest}; give "
        f"{needed}, or a smaller max_model_len"
    )


def _reason(error: Exception) -> str:
    """One line out of vLLM's exception; pydantic's says what is wrong in its details."""
    details = getattr(error, "errors", None)
    if not callable(details):
        said, place = models.one_line(error), _place(error)
        if not str(error).strip():
            return f"{said}{place}; the checkpoint's config.json may not fit its weights"
        return said + place if isinstance(error, AttributeError | KeyError | TypeError) else said
    first = details()[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return models.one_line(f"{place}: {message}" if place else message)


def _place(error: Exception) -> str:
    """The function of vLLM's that raised an error: its name is often that of what was wrong."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    names = [f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}" for frame in frames]
    places = [name for name in names if name.startswith("vllm.")]
    return f" in {places[-1]}" if places else ""


def effective(settings: Mapping[str, Any], engine: Any) -> dict[str, Any]:
    """The options with what vLLM made of the ones left open, and of arguments of its own that
    decide speed, by vLLM's names."""
    import torch

    config = engine.vllm_config
    compiled, reserved = config.compilation_config, config.cache_config.kv_cache_memory_bytes
    return {
        **settings,
        "max_model_len": config.model_config.max_model_len,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "enforce_eager": config.model_config.enforce_eager,
        "kv_cache_gib": None if reserved is None else reserved / 2**30,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "enable_chunked_prefill": config.scheduler_config.enable_chunked_prefill,
        "async_scheduling": bool(config.scheduler_config.async_scheduling),
        "compilation_mode": getattr(compiled.mode, "name", None),
        "cudagraph_mode": getattr(compiled.cudagraph_mode, "name", None),
        "attention_backend": _attention(config),
        "model_runner": "V2" if getattr(config, "use_v2_model_runner", False) else "V1",
        KV_CACHE_TOKENS: config.cache_config.num_gpu_blocks * config.cache_config.block_size,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
    }


def _attention(config: Any) -> str | None:
    """The backends of the model's attention layers; where those are in other processes, the one
    that was asked for."""
    layers = config.compilation_config.static_forward_context.values()
    asked = getattr(config.attention_config.backend, "name", None)
    seen = {x.get_attn_backend().get_name() for x in layers if hasattr(x, "get_attn_backend")}
    return ", ".join(sorted(seen)) or asked
