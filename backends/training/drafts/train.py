"""Training of draft heads: answers of the frozen model, its hidden states, heads, report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from backends.checkpoints.bound_files import write_bound
from backends.checkpoints.draft_heads import files as draft_heads
from backends.training.drafts.data import DraftData
from backends.training.drafts.eagle import eagle_problem, write_eagle
from backends.training.drafts.eagle_head import EagleHead
from backends.training.drafts.medusa import medusa_problem, write_medusa
from backends.training.drafts.recipe import DraftRecipe, check_draft_recipe, fused_layers
from backends.training.drafts.report import acceptance_report
from backends.training.exits.backbone import dtype_of
from backends.training.exits.fit import SAVE_EVERY_S, Fit, disk_bytes
from backends.training.exits.recipe import held
from backends.training.exits.run import ExitTraining, FrozenModel, StageProgress, bind

PARTS: dict[str, tuple[Any, Any]] = {
    draft_heads.EAGLE3: (eagle_problem, write_eagle),
    draft_heads.MEDUSA: (medusa_problem, write_medusa),
}
"""By kind: what is to be learnt, and how it is written."""


def train_drafts(
    kind: str,
    model: str,
    workloads: Sequence[str],
    out: Path,
    *,
    minutes: float | None = None,
    progress: Callable[[StageProgress], None] | None = None,
    save_every_s: float = SAVE_EVERY_S,
    **choices: Any,
) -> dict[str, Any]:
    """Train draft heads of a model in the folder `out`, going on where a killed run stopped.

    Args:
        kind: of `draft_heads.KINDS`.
        model: bundled name, hub id or local path.
        workloads: whose train splits the prompts come from.
        out: the head's folder; the state of a run under way lies in its subfolder `state`.
        minutes: stop after this time, resumable. A head is written when any epoch was finished.
        progress: called after every batch of answers, of hidden states, and every epoch, whose
            losses are the held-out KL in nats: of all drafts together (eagle3) or of each.
        save_every_s: seconds between states of the training on disk.
        choices: further fields of `DraftRecipe`: source, rows, epochs, rate, batch, seed, drafts,
            decay.

    Returns:
        The content of `draft_head.json`; `finished` is false when the time was up, and without any
        epoch it is the only key.

    Raises:
        UserError: for a bad option, model, source or weight, or a folder of another recipe.
    """
    begun = DraftRecipe("", (), tuple(workloads), kind=kind, **choices)
    check_draft_recipe(begun)
    frozen, recipe = bind(begun, model, partial(_read_layers, kind))
    with held(out, recipe, frozen.directory) as finished:
        if finished is not None:
            return finished
        run = ExitTraining(out, recipe, minutes, progress)
        reserve = _reserve(recipe, frozen)
        found = run.collect(frozen, reserve, normed=False, whole=True)
        if found is None:
            return {"finished": False}
        texts = tuple(
            DraftData(found.backbone, found.pairs, cache, own)
            for cache, own in ((found.train, False), (found.held_out, True))
        )
        told = _fitted(run, recipe, frozen.directory, *texts, save_every_s=save_every_s)
        return run.ended(
            write_bound(out / draft_heads.ABOUT, recipe.checkpoint, draft_heads.FORMAT, told)
        )


def _read_layers(kind: str, depth: int) -> tuple[int, ...]:
    """The layers, below the last, whose states a head of this kind reads."""
    return fused_layers(depth)[:-1] if kind == draft_heads.EAGLE3 else ()


def _reserve(recipe: DraftRecipe, frozen: FrozenModel) -> int:
    """Bytes on the disk for the head and its training's state."""
    shape = frozen.architecture
    if recipe.kind == draft_heads.EAGLE3:
        return disk_bytes(sum(EagleHead(shape, len(recipe.layers) + 1).sizes))
    copied = shape.vocabulary * shape.width * dtype_of(frozen.directory).itemsize
    return disk_bytes(recipe.drafts * shape.width**2) + copied


def _fitted(
    run: ExitTraining,
    recipe: DraftRecipe,
    directory: Path,
    train: DraftData,
    held_out: DraftData,
    *,
    save_every_s: float,
) -> dict[str, Any]:
    """Fit the head, write its weights, and judge its drafts; what `draft_head.json` tells of it."""
    problem_of, write = PARTS[recipe.kind]
    problem, drafts_of = problem_of(recipe, train, held_out)
    done = run.fit(problem, save_every_s)
    best = [parameter.to(train.backbone.head.device) for parameter in done.best]
    weights = best[0] if recipe.kind == draft_heads.EAGLE3 else torch.stack(best)
    write(run.out, recipe, train, directory, weights)
    measured = acceptance_report(held_out, partial(drafts_of, weights), recipe.drafts)
    return {
        "kind": recipe.kind,
        **done.origin(recipe, (prompt.ids for prompt, _ in [*train.used, *held_out.used])),
        "report": {"training": _training(done, recipe, train), "held_out": measured},
    }


def _training(done: Fit, recipe: DraftRecipe, train: DraftData) -> dict[str, Any]:
    return {
        "answers": len(train),
        "positions": train.cache.positions,
        **done.told(recipe),
        "train_kl": [[round(value, 5) for value in epoch] for epoch in done.train_loss],
        "held_out_kl": [[round(value, 5) for value in epoch] for epoch in done.held_out_loss],
    }
