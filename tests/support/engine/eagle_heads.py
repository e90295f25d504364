"""EAGLE-3 heads of random weights, and decoders that draft with them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from backends.engine.decoder import Decoder
from backends.engine.drafters.eagle.drafter import EagleDrafts, EagleExecutor
from backends.engine.drafters.eagle.native_head import NativeEagle
from backends.engine.drafters.eagle.sizes import eagle_shapes
from backends.engine.drafters.eagle.torch_head import TorchEagle
from backends.engine.drafters.eagle.weights import EagleWeights, load_eagle
from backends.engine.executors.base import KeepsStates
from backends.engine.executors.native import NativeExecutor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import Architecture
from tests.support.engine.random_models import RandomModel, open_executor

MAX_LEN = 128


def taps_of(model: RandomModel) -> list[int]:
    """One in the middle, the embeddings and the last, in no order."""
    return [model.architecture.layers, 0, 2]


def random_tensors(model: RandomModel, taps: int, seed: int = 0) -> dict[str, Tensor]:
    """By their names in a checkpoint."""
    return _drawn(model.architecture, taps, model.weights.embedding.dtype, seed)


def _drawn(target: Architecture, taps: int, dtype: torch.dtype, seed: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    found = {}
    for name, shape in eagle_shapes(target, taps).items():
        noise = torch.randn(shape, generator=draw)
        found[name] = (1 + 0.2 * noise if len(shape) == 1 else noise * shape[1] ** -0.5).to(dtype)
    return found


def random_eagle(model: RandomModel, seed: int = 0) -> EagleWeights:
    """A head that states after `taps_of` go into, read from a file."""
    return drawn_eagle(
        model.architecture, len(taps_of(model)), model.weights.embedding.dtype, seed=seed
    )


def drawn_eagle(
    target: Architecture, taps: int, dtype: torch.dtype, device: str = "cpu", seed: int = 0
) -> EagleWeights:
    """A head that reads so many states, read from a file."""
    with tempfile.TemporaryDirectory() as folder:
        save_file(_drawn(target, taps, dtype, seed), Path(folder) / "model.safetensors")
        return load_eagle(Path(folder), target, taps, dtype, device)


def open_target(model: RandomModel, slots: int, kernels: str) -> KeepsStates:
    """A model's executor, in torch or whatever is best here."""
    executor = (
        TorchExecutor(model.weights, model.architecture, slots=slots, max_len=MAX_LEN)
        if kernels == "torch"
        else open_executor(model, (), slots)
    )
    assert isinstance(executor, NativeExecutor | TorchExecutor)
    return executor


def open_pair(
    model: RandomModel, slots: int, kernels: str = "auto", seed: int = 0
) -> tuple[KeepsStates, EagleExecutor]:
    """A model's executor, and its head's beside it."""
    weights = random_eagle(model, seed)
    executor = open_target(model, slots, kernels)
    beside = weights, model.weights, model.architecture, executor.keep_states(taps_of(model))
    if isinstance(executor, NativeExecutor):
        return executor, NativeEagle(*beside, slots=slots, max_len=MAX_LEN, threads=1)
    return executor, TorchEagle(*beside, slots=slots, max_len=MAX_LEN)


def eagle_decoder(model: RandomModel, slots: int, drafts: int, kernels: str = "auto") -> Decoder:
    """Drafts whatever the head thinks of them."""
    executor, head = open_pair(model, slots, kernels)
    return Decoder(executor, EagleDrafts(head, drafts, 0.0))
