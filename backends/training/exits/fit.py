"""Epochs of Adam on cached states, resumable: the same for exit heads and the exit classifier."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends.seen import MARKS, joined_marks
from backends.training.exits.recipe import STATE, ExitRecipe
from backends.training.small_models.checkpoint import load_state, save_state
from harness.core.errors import UserError

SAVE_EVERY_S = 20.0
SAVES_APART = 10
"""Between two states on the disk lies at least so many times what the last one took to write."""
LEAST_GAIN = 1e-3
"""Share by which a held-out loss must fall for an epoch to count as progress."""


@dataclass(frozen=True)
class FittedBatch:
    """One batch, summed over its positions."""

    losses: Tensor
    """[parameters]."""
    gradients: Tensor
    """[parameters, *parameter]."""
    positions: int


@dataclass(frozen=True)
class Objective:
    """What is to be learnt: parameters of one shape, float32, and how they do."""

    parameters: list[Tensor]
    """As they begin; changed in place."""
    answers: int
    """Number of training answers."""
    step: Callable[[list[int]], FittedBatch]
    """Losses and gradients on these answers."""
    held_out: Callable[[], list[float]]
    """The mean loss of each parameter on the held-out positions."""


@dataclass
class Fit:
    """A training under way: parameters side by side, each with a loss of its own.

    Lists run over the parameters; those of `train_loss` and `held_out_loss` over epochs first.
    """

    parameters: list[Tensor]
    """float32."""
    best: list[Tensor]
    """Each parameter in its best epoch on held-out rows, on the CPU."""
    best_loss: list[float]
    epoch: int = 0
    idle: int = 0
    """Epochs since any loss got better."""
    seconds: float = 0.0
    train_loss: list[list[float]] = field(default_factory=list)
    held_out_loss: list[list[float]] = field(default_factory=list)
    diverged: bool = False
    """Whether the epoch after these had a loss that is no number. Nothing of it is kept."""

    def stopped(self, recipe: ExitRecipe) -> str | None:
        """Why training is over: "early stop" or "last epoch"; None while it goes on."""
        if self.epoch >= recipe.epochs:
            return "last epoch"
        return "early stop" if self.idle >= recipe.patience else None

    def told(self, recipe: ExitRecipe) -> dict[str, Any]:
        """What a report says of how long it took, whatever was learnt."""
        return {
            "epochs": self.epoch,
            "ended": self._ended(recipe),
            "seconds": round(self.seconds, 1),
        }

    def _ended(self, recipe: ExitRecipe) -> str:
        if self.diverged:
            return f"a loss of epoch {self.epoch + 1} is no number"
        return self.stopped(recipe) or "time is up"

    def origin(self, recipe: ExitRecipe, prompts: Iterable[Sequence[int]]) -> dict[str, Any]:
        """What the file with the parameters says of where they come from; `prompts`: token ids of
        those that were learnt from or measured on."""
        return {
            "finished": self.stopped(recipe) is not None,
            "recipe": recipe.to_dict(),
            MARKS: joined_marks(prompts),
        }


def fit(
    out: Path,
    recipe: ExitRecipe,
    problem: Objective,
    report: Callable[[Fit], bool],
    save_every_s: float = SAVE_EVERY_S,
) -> Fit:
    """Train a problem's parameters; go on from the state in `out` if there is one.

    Args:
        out, recipe: the run's folder; schedule and seed.
        problem: what is to be learnt.
        report: called after every epoch; False stops with the state saved.
        save_every_s: seconds between states on disk, in whole epochs; 0: after each, however slow.

    Returns:
        The fit, whose `stopped` says whether it is at its end; it ends before the first epoch with
        a loss that is not finite, too.

    Raises:
        UserError: where a loss is not finite before anything is learnt, or in the first epoch.
    """
    parameters = problem.parameters
    adam = torch.optim.Adam(parameters, lr=recipe.rate)
    state = Fit(parameters, [p.cpu().clone() for p in parameters], [])
    path = out / STATE / "fit.pt"
    _resume(state, adam, load_state(path))
    state.best_loss = state.best_loss or problem.held_out()
    if not all(map(math.isfinite, state.best_loss)):
        raise UserError(
            "a held-out loss is not finite before anything is learnt: the model's states are not, "
            "in the dtype of its config.json, and no --lr helps"
        )
    saved = began = time.monotonic()
    took_s = 0.0
    before_s = state.seconds
    while state.stopped(recipe) is None:
        trained, held_out = _epoch(recipe, problem, adam, state.epoch), problem.held_out()
        if not all(map(math.isfinite, (*trained, *held_out))):
            if state.epoch == 0:
                raise UserError(diverged(recipe, 1))
            state.diverged = True  # the last state on the disk stays: its parameters are numbers
            break
        state.train_loss.append(trained)
        _keep_best(state, held_out)
        state.epoch += 1
        now = time.monotonic()
        state.seconds = before_s + now - began
        over = not report(state) or state.stopped(recipe) is not None
        if over or now - saved >= (save_every_s and max(save_every_s, SAVES_APART * took_s)):
            begun = time.monotonic()
            _save(path, state, adam)
            saved = time.monotonic()
            took_s = saved - begun
        if over:
            break
    return state


def diverged(recipe: ExitRecipe, epoch: int) -> str:
    """What to say of an epoch, from 1, in which a loss is no number."""
    return (
        f"epoch {epoch}: a loss is not finite with --lr {recipe.rate:g}; take a lower --lr in "
        "another folder, which takes the answers from the cache"
    )


def disk_bytes(parameters: int) -> int:
    """What the states of a fit of so many parameters take on the disk (themselves, the best ones
    and Adam's two moments, float32, and as much again while one state replaces another), and the
    file that ships them."""
    return 4 * parameters * (2 * 4 + 1)


def schedule(step: int, steps: int, warm_up: float) -> float:
    """The factor of the rate at a step counted from 0: linear warm-up, then a cosine to 0."""
    rising = max(1, round(warm_up * steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


@torch.no_grad()
def _epoch(
    recipe: ExitRecipe, problem: Objective, adam: torch.optim.Adam, epoch: int
) -> list[float]:
    """One pass over the training answers in an order that the seed and the epoch decide."""
    count = problem.answers
    seed = (recipe.seed * 1_000_003 + epoch) % 2**64  # torch takes no larger one
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(count, generator=generator).tolist()
    batches = [order[start : start + recipe.batch] for start in range(0, count, recipe.batch)]
    total, positions = torch.zeros(len(problem.parameters)), 0
    for number, answers in enumerate(batches):
        made = problem.step(answers)
        total += made.losses.cpu()
        positions += made.positions
        step, steps = epoch * len(batches) + number, recipe.epochs * len(batches)
        for group in adam.param_groups:
            group["lr"] = recipe.rate * schedule(step, steps, recipe.warm_up)
        slopes = made.gradients / made.positions
        for parameter, slope in zip(problem.parameters, slopes, strict=True):
            parameter.grad = slope
        adam.step()
    return [float(value) for value in total / positions]


def _keep_best(state: Fit, losses: list[float]) -> None:
    state.held_out_loss.append(losses)
    state.idle += 1
    for number, value in enumerate(losses):
        if value < state.best_loss[number] * (1 - LEAST_GAIN):
            state.idle = 0
        if value < state.best_loss[number]:
            state.best_loss[number] = value
            state.best[number] = state.parameters[number].detach().cpu().clone()


def _save(path: Path, state: Fit, adam: torch.optim.Adam) -> None:
    content = {key: value for key, value in vars(state).items() if key != "parameters"}
    content["parameters"] = [parameter.detach().cpu() for parameter in state.parameters]
    save_state(path, content | {"adam": adam.state_dict()})


def _resume(state: Fit, adam: torch.optim.Adam, saved: dict[str, Any] | None) -> None:
    if saved is None:
        return
    adam.load_state_dict(saved.pop("adam"))
    for parameter, value in zip(state.parameters, saved.pop("parameters"), strict=True):
        parameter.copy_(value)
    for key, value in saved.items():
        setattr(state, key, value)
