"""A classifier measured for `plan` and `simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.planning.served_costs import ServedCosts
from harness.cli.planning.told import log_decisions
from harness.core.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.classifiers.models.base import RampedClassifier
    from harness.core.nouns import Model

ROWS = 400
"""Bundled inputs from which survival is counted."""
TURNS = 9
"""In which costs are measured."""


def is_classifier(directory: Path) -> bool:
    """Whether a model's folder has a classifier with ramps."""
    from backends.checkpoints import models
    from backends.classifiers.config import FAMILIES

    return str(models.architecture(directory)) in FAMILIES


def measured_labels(
    model: Model,
    directory: Path,
    sizes: list[int],
    log: Path | None,
    entropy: float,
    threads: int,
    progress: Callable[[int], None],
) -> dict[str, Any]:
    """The keys of a profile but for device kinds, which stand below each time: of the bundled
    inputs of its kind, that leave below an entropy (nats), or as a log says. Raises `UserError`."""
    import torch

    from backends.classifiers import measured
    from backends.classifiers.inputs import bundled_inputs
    from backends.classifiers.weights import load

    torch.set_num_threads(threads)
    network = load(directory, model.dtype)
    if not network.ramps:
        raise UserError(f"--model {model.name}: it has no ramps, so that nobody leaves")
    prompts = bundled_inputs(directory, ROWS)
    ramps, survival = _survival(network, prompts, log, entropy)
    cuts = ramps or network.ramps
    with ServedCosts(model, directory, prompts, sizes, cuts, threads) as costs:
        for number in range(1, TURNS + 1):
            progress(number)
            costs.turn()
        found = costs.told()
        moved = measured.transfers(costs.state_bytes(network))
    about = {"layers": network.depth, "batch": sizes[-1], "survival": survival, "ramps": ramps}
    return {**about, **found, "transfer_ms": moved}


def _survival(
    network: RampedClassifier, prompts: list[tuple[int, ...]], log: Path | None, entropy: float
) -> tuple[list[int], list[float]]:
    """Behind which layers there are ramps, and who is left."""
    from backends.classifiers import measured
    from backends.tetris.pipeline import leaving
    from backends.tetris.ramps.rules import EntropyRule

    if log is None:
        leaves = measured.decisions(network, EntropyRule(entropy), prompts)
        return list(network.ramps), leaving.LeaveDecisions(leaves).alive().tolist()
    logged, after = log_decisions(log, network.depth, network.ramps, whose="model")
    return list(after), logged.alive().tolist()
