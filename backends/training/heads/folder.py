"""The folder that heads are shipped in: matrices, shortlist order, trace and report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends.checkpoints.exit_heads import write_folder
from backends.engine.costs.cost_model import Trace
from backends.training.exits.backbone import Backbone
from backends.training.exits.cache import Cache, in_turn, select
from backends.training.exits.data import TrainPrompt
from backends.training.exits.fit import Fit
from backends.training.exits.recipe import ExitRecipe
from backends.training.heads.report import layer_reports, outputs

TRACE = 2500
"""Held-out positions in the held-out trace, at the most."""


def write_heads(
    out: Path,
    recipe: ExitRecipe,
    backbone: Backbone,
    done: Fit,
    train: Cache,
    held_out: Cache,
    pairs: Sequence[tuple[TrainPrompt, list[int]]],
) -> dict[str, Any]:
    """Measure the best heads and write both files. Returns the content of `heads.json`."""
    head = backbone.head
    kept = [parameter.to(head.device) for parameter in done.best]
    trained = outputs(head, held_out, kept)
    original = outputs(head, held_out, [None] * len(kept))
    weights = [parameter.to("cpu", head.dtype).contiguous() for parameter in kept]
    report = {
        "training": _training_report(done, recipe, train),
        "held_out": {"answers": len(held_out.workloads), "positions": held_out.positions},
        "layers": layer_reports(held_out, recipe.layers, trained, original),
    }
    return write_folder(
        out,
        recipe.checkpoint,
        recipe.kind,
        dict(zip(recipe.layers, weights, strict=True)),
        _token_order(pairs, head.shape[0]),
        _trace(recipe, held_out, head, kept),
        {
            "workloads": list(recipe.workloads),
            **done.origin(recipe, (prompt.ids for prompt, _ in pairs)),
            "report": report,
        },
    )


def _training_report(done: Fit, recipe: ExitRecipe, train: Cache) -> dict[str, Any]:
    return {
        "answers": len(train.workloads),
        "positions": train.positions,
        **done.told(recipe),
        "best_held_out_kl": [round(value, 5) for value in done.best_loss],
        "train_kl": [[round(value, 5) for value in epoch] for epoch in done.train_loss],
        "held_out_kl": [[round(value, 5) for value in epoch] for epoch in done.held_out_loss],
    }


def _token_order(pairs: Sequence[tuple[TrainPrompt, list[int]]], vocabulary: int) -> Tensor:
    """All token ids, the most frequent in the training answers first, then by id."""
    count = Counter(token for prompt, ids in pairs if not prompt.held_out for token in ids)
    order = sorted(range(vocabulary), key=lambda token: (-count[token], token))
    return torch.tensor(order, dtype=torch.int32)


def _trace(recipe: ExitRecipe, held_out: Cache, head: Tensor, kept: Sequence[Tensor]) -> Trace:
    """The held-out trace: whole held-out answers, the workloads in turn, up to `TRACE`."""
    cache = select(held_out, in_turn(held_out, TRACE))
    found = outputs(head, cache, kept)
    starts = torch.tensor(cache.starts).numpy()
    return Trace(recipe.layers, found.confidence.numpy(), found.agrees.numpy(), starts)
