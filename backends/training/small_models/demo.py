"""Training of the demo model: from the bundled train rows to a Hugging Face checkpoint."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

from backends.training.folders import check_out
from backends.training.rows.tokenizer import load_tokenizer, train_tokenizer
from backends.training.small_models.llama import Llama, LlamaShape
from backends.training.small_models.recipe import Recipe, TrainingProgress
from backends.training.small_models.run import STATE, TrainingRun
from harness.core.files import only_writer


def train_demo(
    out: Path,
    *,
    recipe: Recipe | None = None,
    minutes: float | None = None,
    threads: int | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> bool:
    """Train the demo model in `out`, going on from the state that a killed run left there.

    Args:
        out: the checkpoint folder; the training state (`training.pt`) lies there too.
        recipe: what to train; a run goes on only with the same recipe, save its steps and decay.
        minutes: stop after this time with the state saved; None trains to the end.
        threads: cores to use on a CPU; they change the speed, not the weights.
        progress: called every 25 steps.

    Returns:
        Whether the last step has been taken.

    Raises:
        UserError: when the state on disk belongs to another recipe, or the folder holds another
            checkpoint.
    """
    recipe = recipe or Recipe()
    check_out(out, (STATE,))
    with only_writer(out, "training"):
        if not (out / "tokenizer.json").exists():
            train_tokenizer(out, seed=recipe.seed)
        torch.manual_seed(recipe.seed)
        model = Llama(LlamaShape(len(load_tokenizer(out)), **recipe.shape))
        run = TrainingRun(out, recipe, model, None, threads or os.cpu_count() or 1)
        try:
            return run.train(minutes, progress)
        finally:
            run.close()
