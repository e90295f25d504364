"""Training of the demo model: from the bundled train rows to a Hugging Face checkpoint."""

import ctypes
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from backends.training import optimizers
from backends.training.batches import POOL, Example, copy_examples, row_pool
from backends.training.checkpoint import export, load_state, save_state
from backends.training.llama import Llama, Shape
from backends.training.objective import Losses, gradients
from backends.training.tokenizer import load_tokenizer, train_tokenizer
from harness.core import UserError

STATE = "training.pt"
SHAPE_DEFAULTS = {"layers": 8, "width": 256, "feed_forward": 768, "heads": 4, "kv_heads": 2}


@dataclass(frozen=True)
class Recipe:
    """Everything that the weights depend on, apart from the machine's floating point."""

    steps: int = 6000
    copy_steps: int = 0
    rows: int = 32
    shards: int = 4
    muon_lr: float = 0.02
    adam_lr: float = 0.003
    prompt_weight: float = 0.05
    decay: float = 0.4
    seed: int = 0
    mix: dict[str, int] = field(
        default_factory=lambda: {"cnn_dailymail": 4, "xsum": 3, "humaneval": 4, "gsm8k": 5}
    )
    shape: dict[str, int] = field(default_factory=lambda: dict(SHAPE_DEFAULTS))


@dataclass(frozen=True)
class Progress:
    """One report: mean cross-entropy per layer (nats per answer token) and speed since the last."""

    step: int
    steps: int
    layer_losses: list[float]
    tokens_per_s: float
    seconds: float


def train_demo(
    out: Path,
    *,
    recipe: Recipe | None = None,
    minutes: float | None = None,
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    save_every: int = 200,
) -> bool:
    """Train the demo model in `out`, going on from the state that a killed run left there.

    Args:
        out: the checkpoint folder; it also holds the training state until the run is finished.
        recipe: what to train; a run can only be continued with another number of steps.
        minutes: stop after this time with the state saved; None trains to the end.
        threads: threads on a CPU; they change the speed, not the weights.
        progress: called every 25 steps.
        save_every: steps between states on disk.

    Returns:
        Whether the run is finished.

    Raises:
        UserError: when the state on disk belongs to another recipe.
    """
    recipe = recipe or Recipe()
    run = Run(out, recipe, threads or os.cpu_count() or 1)
    started = time.monotonic()
    run.train(recipe.steps, minutes and started + 60 * minutes, progress, save_every)
    run.save()
    return run.step == recipe.steps


class Run:
    """A training run: model, optimizers and the number of steps taken."""

    def __init__(self, out: Path, recipe: Recipe, threads: int) -> None:
        keep_freed_memory()
        torch.set_num_threads(1)
        torch.manual_seed(recipe.seed)
        self.out, self.recipe = out, recipe
        if not (out / "tokenizer.json").exists():
            train_tokenizer(out, seed=recipe.seed)
        self.tokenizer = load_tokenizer(out)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = Llama(Shape(len(self.tokenizer), **recipe.shape)).to(device)
        self.optimizers = optimizers.build(self.model, recipe.muon_lr, recipe.adam_lr)
        self.pool = ThreadPoolExecutor(1 if device == "cuda" else threads)
        self.step = 0
        self.batches: tuple[int, list[list[Example]]] = (-1, [])
        self._resume(load_state(out / STATE))

    def train(
        self,
        steps: int,
        deadline: float | None,
        progress: Callable[[Progress], None] | None,
        save_every: int,
    ) -> None:
        """Take steps until the number or the deadline (monotonic clock, s) is reached."""
        mark, tokens = time.monotonic(), 0
        while self.step < steps and (deadline is None or time.monotonic() < deadline):
            rows = self.rows(self.step)
            losses = self.take_step(rows)
            tokens += sum(example.length for example in rows)
            if progress and (self.step % 25 == 0 or self.step == steps):
                now = time.monotonic()
                means = (losses.layers / losses.answers).tolist()
                speed = tokens / (now - mark)
                progress(Progress(self.step, steps, means, speed, now - mark))
                mark, tokens = now, 0
            if self.step % save_every == 0:
                self.save()

    def rows(self, step: int) -> list[Example]:
        """Return the examples of a step; they depend on the recipe and the step alone."""
        recipe = self.recipe
        if step < recipe.copy_steps:
            return copy_examples(len(self.tokenizer), recipe.rows, recipe.seed, step)
        number, slot = divmod(step - recipe.copy_steps, POOL)
        if self.batches[0] != number:
            drawn = row_pool(self.tokenizer, recipe.mix, recipe.rows, recipe.seed, number)
            self.batches = (number, drawn)
        return self.batches[1][slot % len(self.batches[1])]

    def take_step(self, rows: list[Example]) -> Losses:
        """Take one optimizer step on these examples."""
        recipe = self.recipe
        shards = [rows[start :: recipe.shards] for start in range(recipe.shards)]
        losses = gradients(self.model, shards, self.pool, recipe.prompt_weight, torch.bfloat16)
        factor = optimizers.learning_rate(self.step, recipe.steps, decay=recipe.decay)
        optimizers.apply(self.optimizers, factor, self.pool)
        self.step += 1
        return losses

    def save(self) -> None:
        """Write the state and the checkpoint as it is now."""
        state = {
            "recipe": asdict(self.recipe),
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        save_state(self.out / STATE, state)
        export(self.model, self.out, self.out)

    def _resume(self, state: dict[str, Any] | None) -> None:
        if state is None:
            return
        saved, wanted = dict(state["recipe"]), asdict(self.recipe)
        differing = [k for k in wanted if k != "steps" and saved.get(k) != wanted[k]]
        if differing:
            raise UserError(
                f"{self.out / STATE}: {differing[0]} was {saved.get(differing[0])!r} in the run "
                f"begun there, expected {wanted[differing[0]]!r}; choose another folder"
            )
        self.model.load_state_dict(state["model"])
        for optimizer, content in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(content)
        self.step = state["step"]


def keep_freed_memory() -> None:
    """Tell glibc to keep freed blocks, so that each step's activations reuse mapped pages.

    Without this a CPU step spends about a quarter of its time in page faults. Elsewhere than on
    glibc it does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_blocks, arenas = -1, -4, -8
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(mmap_blocks, 0)
        mallopt(arenas, 1)
