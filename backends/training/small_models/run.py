"""The training loop that the demo model and its draft share, with a state that survives a kill."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from backends.training.rows.batches import POOL, Example, row_pool
from backends.training.rows.tokenizer import load_tokenizer
from backends.training.small_models import optimizers
from backends.training.small_models.checkpoint import export, load_state, save_state
from backends.training.small_models.llama import Llama
from backends.training.small_models.objective import (
    Losses,
    products_dtype,
    set_gradients,
    shard_gradients,
)
from backends.training.small_models.recipe import Recipe, TrainingProgress
from backends.training.small_models.workers import ShardProcesses
from harness.core.errors import UserError

STATE = "training.pt"
"""The state's file in the checkpoint folder; not part of the checkpoint."""
SCHEDULE = ("steps", "decay")
"""What may change when a run goes on: steps at the constant rate do not depend on it."""
REPORT_EVERY = 25
SAVE_EVERY = 200
"""Steps between states on disk, at most."""
SAVE_EVERY_S = 20.0
SAVES_APART = 10
"""Between two states on the disk lies at least so many times what the last one took to write, save
for those of `SAVE_EVERY`."""


class TrainingRun:
    """A run in a folder that holds the tokenizer; goes on from the folder's state if it has one.

    Args:
        out: the checkpoint folder.
        recipe: what to train.
        model: the model as it is before the first step.
        teacher: a model whose distribution to learn instead of the rows' own tokens.
        target: the teacher's checksum.
        threads: 1 computes the shards in this process one after another, more in one process
            per shard; the weights come out the same.

    Raises:
        UserError: when the state in the folder belongs to another recipe or target, or is beyond
            the recipe's steps.
    """

    def __init__(
        self,
        out: Path,
        recipe: Recipe,
        model: Llama,
        teacher: Llama | None,
        threads: int,
        target: str | None = None,
    ) -> None:
        self.out, self.recipe, self.step, self._target = out, recipe, 0, target
        self.tokenizer = load_tokenizer(out)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.dtype = products_dtype(device)
        self.model = model.to(device)
        self.teacher = None if teacher is None else teacher.to(device)
        self.optimizers = optimizers.build(self.model, recipe.muon_lr, recipe.adam_lr)
        self._resume(load_state(out / STATE))
        self._half_applied = False
        self._drawn: tuple[int, list[list[Example]]] = (-1, [])
        self._pool = ThreadPoolExecutor(threads)
        side_by_side = device == "cpu" and threads > 1 and recipe.shards > 1
        self._workers = (
            ShardProcesses(self.model, recipe.shards, self.dtype, self.teacher)
            if side_by_side
            else None
        )

    def train(
        self,
        minutes: float | None = None,
        progress: Callable[[TrainingProgress], None] | None = None,
    ) -> bool:
        """Take steps to the last or until the time is up; save; return whether all are taken. An
        interrupt costs no step that was taken, unless it comes while the weights change.

        Raises:
            UserError: when a process that computes gradients has died, with all steps saved; and
                for a disk that takes no more.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        first = self.step
        try:
            self._take_steps(minutes, progress)
            self.save()
        except KeyboardInterrupt:
            if self.step > first and not self._half_applied:
                self.save()
            raise
        torch.set_num_threads(threads)
        return self.step == self.recipe.steps

    def _take_steps(
        self, minutes: float | None, progress: Callable[[TrainingProgress], None] | None
    ) -> None:
        started = mark = saved = time.monotonic()
        tokens, took_s = 0, 0.0
        while self.step < self.recipe.steps:
            if minutes is not None and time.monotonic() - started >= 60 * minutes:
                break
            rows = self.rows(self.step)
            try:
                losses = self.take_step(rows)
            except UserError:  # the weights are as the step before left them
                self.save()
                raise
            tokens += sum(example.length for example in rows)
            now = time.monotonic()
            if self.step % REPORT_EVERY == 0 and progress:
                progress(self._report(losses, tokens, now - mark))
                mark, tokens = now, 0
            due = now - saved >= max(SAVE_EVERY_S, SAVES_APART * took_s)
            if due or self.step % SAVE_EVERY == 0:
                self.save()
                saved = time.monotonic()
                took_s = saved - now

    def rows(self, step: int) -> list[Example]:
        """Return the examples of a step; they depend on the recipe and the step alone."""
        recipe = self.recipe
        number, slot = divmod(step, POOL)
        if self._drawn[0] != number:
            mix = recipe.late_mix if number >= recipe.late_from // POOL else recipe.mix
            drawn = row_pool(self.tokenizer, mix, recipe.rows, recipe.seed, number)
            self._drawn = (number, drawn)
        return self._drawn[1][slot % len(self._drawn[1])]

    def take_step(self, rows: list[Example]) -> Losses:
        """Take one optimizer step on these examples."""
        recipe = self.recipe
        shards = [rows[start :: recipe.shards] for start in range(recipe.shards)]
        if self._workers is not None:
            losses = set_gradients(
                self.model, self._workers.gradients(shards, recipe.prompt_weight)
            )
        else:
            computed = [
                shard_gradients(self.model, shard, recipe.prompt_weight, self.dtype, self.teacher)
                for shard in shards
            ]
            losses = set_gradients(self.model, computed)
        factor = optimizers.learning_rate(self.step, recipe.steps, decay=recipe.decay)
        self._half_applied = True
        optimizers.apply(self.optimizers, factor, self._pool)
        self.step += 1
        self._half_applied = False
        return losses

    def save(self) -> None:
        """Write the state and the checkpoint as it is now."""
        state = {
            "recipe": asdict(self.recipe),
            "target": self._target,
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        save_state(self.out / STATE, state)
        export(self.model, self.out, self.out)

    def close(self) -> None:
        """End the helper processes and threads."""
        self._pool.shutdown()
        if self._workers is not None:
            self._workers.close()

    def _report(self, losses: Losses, tokens: int, seconds: float) -> TrainingProgress:
        means = (losses.layers / losses.answers).tolist()
        return TrainingProgress(self.step, self.recipe.steps, means, tokens / seconds, seconds)

    def _resume(self, state: dict[str, Any] | None) -> None:
        check_state(self.out, state, self.recipe, self._target)
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        for optimizer, content in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(content)
        self.step = int(state["step"])


def check_state(
    out: Path, state: dict[str, Any] | None, recipe: Recipe, target: str | None = None
) -> None:
    """Raise `UserError` for a state in `out` that a run of this recipe, learning from the `target`
    of this checksum, cannot go on from."""
    if state is None:
        return
    saved, wanted = dict(state["recipe"]), asdict(recipe)
    for key in wanted:
        if key not in SCHEDULE and saved.get(key) != wanted[key]:
            raise UserError(
                f"{out / STATE}: {key} was {saved.get(key)!r} in the run begun there, "
                f"expected {wanted[key]!r}; choose another folder or that value"
            )
    if state.get("target") != target:
        raise UserError(f"{out / STATE}: begun with another --target; choose another folder")
    if state["step"] > recipe.steps:
        raise UserError(
            f"--steps: {recipe.steps}, and the run begun in {out} has taken {state['step']}; "
            "expected no fewer"
        )
