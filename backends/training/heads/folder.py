"""The folder that heads are shipped in: matrices, probes, shortlist order, trace and report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends.engine.model.heads import folded
from backends.training.exits.backbone import Backbone
from backends.training.exits.cache import Cache, in_turn, select
from backends.training.exits.data import TrainPrompt
from backends.training.exits.fit import Fit
from backends.training.exits.recipe import ExitRecipe, write_json
from backends.training.heads.probe import POSITIONS, Probe, fit_probe
from backends.training.heads.report import Outputs, layer_reports, outputs

FORMAT = 1
TRACE = 2500
"""Held-out positions in the calibration trace, at the most."""


def write_heads(
    out: Path,
    recipe: ExitRecipe,
    backbone: Backbone,
    done: Fit,
    train: Cache,
    held_out: Cache,
    pairs: Sequence[tuple[TrainPrompt, list[int]]],
) -> dict[str, Any]:
    """Measure the best heads and write both files, `heads.json` last: it makes the folder valid."""
    from safetensors.torch import save

    head = backbone.head
    kept = [parameter.to(head.device) for parameter in done.best]
    matrices = [folded(head, parameter) for parameter in kept]
    trained = outputs(head, held_out, matrices)
    original = outputs(head, held_out, [head] * len(matrices))
    probes = _probes(head, matrices, train, held_out, trained)
    suffix = "head" if recipe.kind == "full" else "transform"
    tensors = {"token_order": _token_order(pairs, head.shape[0])}
    tensors |= _trace(held_out, head, matrices)
    for layer, parameter, probe in zip(recipe.layers, kept, probes, strict=True):
        tensors[f"layer.{layer}.{suffix}"] = parameter.to("cpu", head.dtype).contiguous()
        tensors[f"layer.{layer}.probe"] = probe.weights
    draft = out / "heads.safetensors.tmp"
    draft.write_bytes(save(tensors))
    draft.replace(out / "heads.safetensors")
    report = {
        "training": _training_report(done, recipe, train),
        "held_out": {"answers": len(held_out.workloads), "positions": held_out.positions},
        "layers": layer_reports(held_out, recipe.layers, trained, original),
        "probes": {str(k): probe.report for k, probe in zip(recipe.layers, probes, strict=True)},
    }
    content = _identity(recipe, head) | {
        "finished": done.stopped(recipe) is not None,
        "recipe": recipe.to_dict(),
        "report": report,
    }
    write_json(out / "heads.json", content)
    return content


def _identity(recipe: ExitRecipe, head: Tensor) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "checkpoint": recipe.checkpoint,
        "layers": list(recipe.layers),
        "kind": recipe.kind,
        "width": head.shape[1],
        "vocabulary": head.shape[0],
        "workloads": list(recipe.workloads),
    }


def _probes(
    head: Tensor, matrices: Sequence[Tensor], train: Cache, held_out: Cache, trained: Outputs
) -> list[Probe]:
    sample = select(train, in_turn(train, POSITIONS))
    learnt = outputs(head, sample, matrices)
    return [fit_probe(sample, learnt, held_out, trained, number) for number in range(len(matrices))]


def _training_report(done: Fit, recipe: ExitRecipe, train: Cache) -> dict[str, Any]:
    return {
        "answers": len(train.workloads),
        "positions": train.positions,
        "epochs": done.epoch,
        "ended": done.stopped(recipe) or "time is up",
        "seconds": round(done.seconds, 1),
        "best_held_out_kl": [round(value, 5) for value in done.best_loss],
        "train_kl": [[round(value, 5) for value in epoch] for epoch in done.train_loss],
        "held_out_kl": [[round(value, 5) for value in epoch] for epoch in done.held_out_loss],
    }


def _token_order(pairs: Sequence[tuple[TrainPrompt, list[int]]], vocabulary: int) -> Tensor:
    """All token ids, the most frequent in the training answers first, then by id."""
    count = Counter(token for prompt, ids in pairs if not prompt.held_out for token in ids)
    order = sorted(range(vocabulary), key=lambda token: (-count[token], token))
    return torch.tensor(order, dtype=torch.int32)


def _trace(held_out: Cache, head: Tensor, matrices: Sequence[Tensor]) -> dict[str, Tensor]:
    """The calibration trace: whole held-out answers, the workloads in turn, up to `TRACE`."""
    cache = select(held_out, in_turn(held_out, TRACE))
    found: dict[str, Tensor] = {"trace.start": torch.tensor(cache.starts, dtype=torch.int32)}
    for suffix, chosen in (("", matrices), ("_original", [head] * len(matrices))):
        out = outputs(head, cache, chosen)
        found[f"trace.confidence{suffix}"] = out.confidence.half()
        found[f"trace.agrees{suffix}"] = out.agrees.to(torch.uint8)
    return found
