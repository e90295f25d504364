"""Whether vLLM can take the sizes that a checkpoint's ``config.json`` gives, and whether its
matrices are of them."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from harness.core.errors import UserError, runs_elsewhere

_AS_IT_LIES = (None, "auto", "hf", "safetensors")
"""Load formats by which vLLM reads a checkpoint's own tensors."""
_NO_SIZES = {
    "architectures", "rope_theta", "rope_scaling", "rope_parameters", "max_position_embeddings",
}  # fmt: skip
"""Fields of a configuration that no tensor's shape depends on."""
_QUANTISED = "hf_quant_config.json"
"""Says so beside a configuration that does not."""

_USUAL_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Sizes that vLLM lists for its attention on a CPU. Its kernel takes more; asking it takes
seconds."""
_LARGEST_HEAD = 1024
"""Of those that are asked about."""


def check_head_size(backend: str, model_dir: Path, engine: Mapping[str, Any]) -> None:
    """Raise `UserError` for heads that vLLM's attention on this CPU does not take, which it says
    only in its first step. Of the families that our own engine knows. Takes seconds where it has to
    be asked, and is no part of what loads an engine.

    Args:
        backend: begins the error line.
        model_dir: folder of the ``config.json``.
        engine: arguments of vLLM's `EngineArgs`; none is checked that reads another configuration.
    """
    from backends.engine.model.architecture import EngineError, read_architecture

    if runs_elsewhere() or {"hf_overrides", "hf_config_path"} & set(engine):
        return
    try:
        size = read_architecture(model_dir).head_dim
    except EngineError:
        return
    if size in _USUAL_HEADS or size > _LARGEST_HEAD:
        return
    import torch

    if torch.cuda.is_available():
        return
    taken = _cpu_head_sizes()
    if taken and size not in taken:
        raise UserError(
            f"backend '{backend}': {model_dir / 'config.json'}: head_dim {size}: vLLM's attention "
            f"on a CPU has no kernel for such heads; expected one of {', '.join(map(str, taken))}"
        )


@functools.cache
def _cpu_head_sizes() -> tuple[int, ...] | None:
    """Ascending; None where vLLM does not run on a CPU, or does not tell."""
    # importing vLLM sets up logging, signals and threads, which an engine's own process is for
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned) as pool:
        try:
            return pool.submit(_asked_head_sizes).result()
        except Exception:  # another vLLM than this was written for: its start will say it
            return None


def _asked_head_sizes() -> tuple[int, ...] | None:
    """The same, of the kernel: its metadata are made for a head size, or there is none for it."""
    from backends.vllm.arguments import set_environment

    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)  # what vLLM says as it is imported is no remark on the run
    set_environment(None)
    import torch
    from vllm import _custom_ops as ops
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return None
    current_platform.import_kernels()
    ends = torch.tensor([0, 1], dtype=torch.int32)

    def takes(size: int) -> bool:
        try:
            ops.cpu_attn_get_scheduler_metadata(
                num_reqs=1,
                num_heads=1,
                num_kv_heads=1,
                head_dim=size,
                seq_lens=ends[1:],
                dtype=torch.float32,
                query_start_loc=ends,
                causal=True,
                sliding_window_size=-1,
                isa="vec16" if size % 32 else "vec",  # built for every processor
                enable_kv_split=False,
            )
        except RuntimeError as error:
            return "Unsupported CPU attention" not in str(error)
        return True

    return tuple(filter(takes, range(1, _LARGEST_HEAD + 1)))


def check_shapes(arguments: Mapping[str, Any]) -> None:
    """Raise `UserError` for the first tensor of another shape than the configuration asks for: of a
    wider matrix vLLM takes as much as it has room for, and answers something else. Reads headers
    alone, of the families that our own engine knows.

    Args:
        arguments: of vLLM's `EngineArgs`; none is checked that reads no weights or another
            configuration.
    """
    from backends.engine.model.architecture import EngineError, read_architecture
    from backends.engine.model.checkpoint import READ, Checkpoint
    from backends.engine.model.dimensions import tensor_shapes

    directory = Path(arguments["model"])
    if (
        set(arguments.get("hf_overrides") or ()) - _NO_SIZES
        or arguments.get("hf_config_path")
        or arguments.get("load_format") not in _AS_IT_LIES
        or (directory / _QUANTISED).exists()
    ):
        return
    try:
        expected = dict(tensor_shapes(read_architecture(directory)))
        stored = Checkpoint.open(directory).tensors
    except EngineError:  # another family, quantised, or files that vLLM reads in another way
        return
    for name, shape in expected.items():
        found = stored.get(name)
        # numbers of other kinds may be packed
        if found is not None and found.dtype in READ and found.shape != shape:
            raise UserError(
                f"{directory}: tensor {name} has shape {list(found.shape)}, and config.json "
                f"asks for {list(shape)}"
            )
