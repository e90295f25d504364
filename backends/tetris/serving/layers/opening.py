"""Opens the layers of a stage, and what measures confidence behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from backends.engine.executors.base import StepRows
from backends.engine.model.architecture import Architecture, EngineError, read_architecture
from backends.kernels.cpu.native import NativeUnavailableError
from backends.tetris.serving.cut_plan import NAME, CutPlan
from backends.tetris.serving.layers.base import Confidence, Hidden, StageLayers
from harness.core.errors import UserError

if TYPE_CHECKING:
    from backends.tetris.serving.jobs import StageSetup


def open_layers(setup: StageSetup) -> tuple[StageLayers, Confidence | None]:
    """The stage's layers, and what measures confidence behind them where its head does not. Raises
    `UserError` for what the engine cannot take."""
    torch.set_num_threads(setup.threads)
    plan = CutPlan(setup.model_dir, setup.options)
    is_last = setup.index == len(setup.cuts)
    try:
        shape = read_architecture(setup.model_dir)
        opened = _on_a_gpu if setup.options["kernels"] == "triton" else _on_the_cpu
        layers, embedding = opened(setup, plan, shape)
    except (EngineError, NativeUnavailableError) as error:
        raise UserError(f"backend '{NAME}': {error}") from None
    return layers, None if is_last else _confidence(plan, embedding, layers.device)


def _span(setup: StageSetup, plan: CutPlan) -> range:
    bounds = (0, *setup.cuts, plan.depth)
    return range(bounds[setup.index], bounds[setup.index + 1])


def _head(setup: StageSetup, plan: CutPlan, final: Any) -> Any:
    """What speaks behind a stage; None behind the last one, where it is the model's own."""
    last = setup.index == len(setup.cuts)
    return None if last else plan.head(setup.cuts[setup.index], final)


def _on_the_cpu(setup: StageSetup, plan: CutPlan, shape: Architecture) -> tuple[StageLayers, Any]:
    from backends.engine.model.packed import load_packed
    from backends.tetris.serving.layers.native import NativeStage

    dtype = getattr(torch, setup.model.dtype)
    weights = load_packed(setup.model_dir, shape, dtype, _span(setup, plan))
    layers = NativeStage(
        weights,
        shape,
        _head(setup, plan, weights.head),
        slots=setup.held,
        max_len=setup.options["max_model_len"],
        threads=setup.threads,
    )
    return layers, weights.embedding


def _on_a_gpu(setup: StageSetup, plan: CutPlan, shape: Architecture) -> tuple[StageLayers, Any]:
    """Of a worker's card. The interpreter's runs are on the CPU."""
    from backends.engine.executors.cuda_calls.layers import rows_for
    from backends.engine.model.weights import load_weights
    from backends.kernels.triton_runtime import INTERPRETED
    from backends.tetris.serving.layers.cuda import CudaStage

    place = torch.device("cpu")
    if not INTERPRETED:
        place = _card(setup)
        torch.cuda.set_device(place)
    dtype = getattr(torch, setup.model.dtype)
    weights = load_weights(setup.model_dir, shape, dtype, place, _span(setup, plan))
    layers = CudaStage(
        weights,
        shape,
        _head(setup, plan, weights.head),
        is_first=setup.index == 0,
        slots=setup.held,
        max_len=setup.options["max_model_len"],
        rows=rows_for(setup.options["max_num_seqs"]),
    )
    return layers, weights.embedding


def _card(setup: StageSetup) -> torch.device:
    """Workers take those in sight by turns."""
    return torch.device("cuda", setup.worker % torch.cuda.device_count())


def _confidence(plan: Any, embedding: Any, device: str) -> Confidence | None:
    """See `backends.own.exits.rule.measure_of`; None where the head itself answers."""
    from backends.kernels.exit_confidence import cosine_rows, linear_probability

    def there(states: Hidden) -> torch.Tensor:
        return torch.from_numpy(states).to(device)

    def state(rows: StepRows, before: Hidden | None, after: Hidden) -> Any:
        if before is not None:
            return cosine_rows(there(before), there(after))
        first = embedding[torch.from_numpy(rows.tokens.astype(np.int64))]
        return cosine_rows(first.float(), there(after))

    if plan.policy.measure == "state":
        return state
    if plan.policy.measure == "classifier":
        vector, bias = plan.classifier().difference()
        weight = vector.to(device)
        return lambda rows, before, after: linear_probability(there(after), weight, bias)
    return None
