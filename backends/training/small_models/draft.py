"""Training of the draft model: the target's first layers, distilled from the target."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from backends.checkpoints import models
from backends.training.folders import check_out
from backends.training.small_models.checkpoint import load_ours, load_state
from backends.training.small_models.llama import Llama
from backends.training.small_models.recipe import SHAPE, Recipe, TrainingProgress
from backends.training.small_models.run import STATE, TrainingRun, check_state
from harness.core.errors import UserError
from harness.core.files import only_writer
from harness.core.nouns import Model

LAYERS = 2
RECIPE = Recipe(
    steps=1000,
    muon_lr=0.01,
    adam_lr=0.001,
    prompt_weight=0.0,
    seed=1,
    shape=SHAPE | {"layers": LAYERS},
)


def first_layers(target: Llama, layers: int) -> Llama:
    """Return a copy of the target's first layers under its embedding and final norm."""
    if not 0 < layers < target.shape.layers:
        raise UserError(
            f"draft layers: expected 1 to {target.shape.layers - 1} (the target has "
            f"{target.shape.layers}), got {layers}"
        )
    draft = Llama(replace(target.shape, layers=layers))
    kept = draft.state_dict().keys()
    draft.load_state_dict({k: v for k, v in target.state_dict().items() if k in kept})
    return draft


def train_draft(
    target: str | Path,
    out: Path,
    *,
    recipe: Recipe = RECIPE,
    minutes: float | None = None,
    threads: int | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> bool:
    """Train a draft for the target checkpoint in `out`; it can be killed and continued.

    It begins as the target's first layers, which already predict because of the layer-weighted
    loss, and learns the target's distribution on answer tokens, by forward KL.

    Args:
        target: bundled name or folder of a model that `train demo` made.
        out: the draft's folder; gets the target's tokenizer.
        recipe: what to train; its shape's number of layers is the draft's.
        minutes, threads, progress: as in `train_demo`.

    Raises:
        UserError: for a target that is none, a number of layers that is not below the target's, a
            foreign state, and a folder that holds another checkpoint.
    """
    directory = models.resolve(Model(str(target)))
    teacher = load_ours(directory, "--target")
    draft = first_layers(teacher, recipe.shape["layers"])
    check_out(out, (STATE,), directory)
    checksum = models.checksum(directory)
    check_state(out, load_state(out / STATE), recipe, checksum)
    with only_writer(out, "training"):
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(directory / name, out / name)
        run = TrainingRun(out, recipe, draft, teacher, threads or os.cpu_count() or 1, checksum)
        try:
            return run.train(minutes, progress)
        finally:
            run.close()
