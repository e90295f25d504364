"""Training of the exit classifier: answers of the frozen model, its states, labels, one layer.

After "Confident Adaptive Language Modeling" (CALM), section 3.5, whose classifier "An Efficient
Inference Framework for Early-exit Large Language Models" uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backends.checkpoints.classifier import Classifier, write_classifier
from backends.training.classifier.fit import Scale, classifier_problem, scale_of
from backends.training.classifier.labels import Labels, label
from backends.training.classifier.report import confidences, held_out_report
from backends.training.exits.fit import SAVE_EVERY_S, Fit, disk_bytes
from backends.training.exits.recipe import STATE, ExitRecipe, held
from backends.training.exits.run import ExitTraining, Material, StageProgress, bind
from backends.training.heads.recipe import parse_layers
from harness.core.errors import UserError

KIND = "classifier"


def train_classifier(
    model: str,
    workloads: Sequence[str],
    out: Path,
    *,
    layers: str | None = None,
    minutes: float | None = None,
    progress: Callable[[StageProgress], None] | None = None,
    save_every_s: float = SAVE_EVERY_S,
    **choices: Any,
) -> dict[str, Any]:
    """Train the exit classifier of a model in the folder `out`; a killed run goes on where it was.

    Args:
        model: bundled name, hub id or local path.
        workloads: whose train splits the prompts come from.
        out: the classifier's folder; the state of a run under way lies in its subfolder `state`.
        layers: exit layers such as "16,24", whose states are kept; all but the last by default.
        minutes: stop after this time, resumable. Files are written when any epoch was finished.
        progress: called after every batch of answers, states and labels, and every epoch, whose
            single loss is the balanced held-out cross-entropy in nats.
        save_every_s: seconds between states of the training on disk.
        choices: further fields of `ExitRecipe`: source, rows, epochs, rate, batch, seed, patience.

    Returns:
        The content of `classifier.json`; `finished` is false when the time was up, and without any
        epoch it is the only key.

    Raises:
        UserError: for a bad option, model, source or weight, a folder of another recipe, or a model
            whose layers always agree with its last.
    """
    begun = ExitRecipe("", (), tuple(workloads), KIND, **choices)
    frozen, recipe = bind(begun, model, lambda depth: _exit_layers(layers, depth))
    with held(out, recipe, frozen.directory) as finished:
        if finished is not None:
            return finished
        run = ExitTraining(out, recipe, minutes, progress)
        reserve = disk_bytes(2 * (frozen.architecture.width + 1))
        found = run.collect(frozen, reserve, normed=False)
        labels = None if found is None else _labels(run, found)
        if found is None or labels is None:
            return {"finished": False}
        device = found.backbone.head.device
        scale = scale_of(found.train, device)
        problem = classifier_problem(found.train, found.held_out, labels, scale, device)
        done = run.fit(problem, save_every_s)
        return run.ended(_write(out, recipe, done, found, labels, scale))


def _exit_layers(text: str | None, depth: int) -> tuple[int, ...]:
    if depth < 2:
        raise UserError(f"--model: a model of {depth} layer has none to exit at")
    return parse_layers(text or "all", depth)


def _labels(run: ExitTraining, found: Material) -> tuple[Labels, Labels] | None:
    """Of the training and the held-out positions; None where the time was up."""
    made = []
    for name, cache in (("training", found.train), ("held-out", found.held_out)):
        going_on = run.stage(f"labels, {name}", cache.positions)
        labels = label(run.out / STATE / f"{name}.labels", found.backbone, cache, going_on)
        if labels is None:
            return None
        made.append(labels)
    for labels, cache, use in (
        (made[0], found.train, "learn"),
        (made[1], found.held_out, "measure"),
    ):
        shares = labels.shares()
        if not bool(((shares > 0) & (shares < 1)).any()):
            raise UserError(
                f"--workload: every layer has the last layer's top token at all or at none of "
                f"{cache.positions} positions, so there is nothing to {use}; take more --rows"
            )
    return made[0], made[1]


def _write(
    out: Path,
    recipe: ExitRecipe,
    done: Fit,
    found: Material,
    labels: tuple[Labels, Labels],
    scale: Scale,
) -> dict[str, Any]:
    """Measure the best epoch's layer and write both files."""
    weight, bias = (part.cpu() for part in scale.folded(done.best[0].to(scale.mean.device)))
    confidence = confidences(found.held_out, weight, bias)
    held_out = found.held_out
    report = {
        "training": _training_report(done, recipe, found, labels[0]),
        "held_out": {"answers": len(held_out.workloads), "positions": held_out.positions},
        **held_out_report(
            held_out,
            recipe.layers,
            labels[1],
            confidence,
            depth=found.backbone.architecture.layers,
        ),
    }
    told = {
        "workloads": list(recipe.workloads),
        **done.origin(recipe, (prompt.ids for prompt, _ in found.pairs)),
    }
    made = Classifier(out, weight, bias, recipe.layers, report)
    return write_classifier(made, recipe.checkpoint, told)


def _training_report(
    done: Fit, recipe: ExitRecipe, found: Material, labels: Labels
) -> dict[str, Any]:
    shares = zip(recipe.layers, labels.shares().tolist(), strict=True)
    return {
        "answers": len(found.train.workloads),
        "positions": found.train.positions,
        "agrees": {str(layer): round(share, 5) for layer, share in shares},
        **done.told(recipe),
        "best_held_out_loss": round(done.best_loss[0], 5),
        "train_loss": [round(epoch[0], 5) for epoch in done.train_loss],
        "held_out_loss": [round(epoch[0], 5) for epoch in done.held_out_loss],
    }
