"""The training of exit heads on cached states: forward KL to the final layer's distribution.

The gradient is written out, so that one pass over a few hundred positions at a time needs no
graph and a vocabulary of 128k fits: with z = E T x and p = softmax(z), dKL(p* || p)/dz = p - p*.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends.engine.heads import folded
from backends.training.checkpoint import load_state, save_state
from backends.training.heads_cache import Cache
from backends.training.heads_recipe import STATE, HeadRecipe

LOGITS = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Logits computed at once: what fits a cache, or a GPU beside the model."""
SAVE_EVERY_S = 20.0
LEAST_GAIN = 1e-3
"""Share by which a layer's held-out KL must fall for an epoch to count as progress."""


@dataclass
class Fit:
    """A training under way. Lists run over the exit layers, or over epochs where so named."""

    parameters: list[Tensor]
    """float32: T [d, d] or a head [V, d] per layer."""
    best: list[Tensor]
    """The parameters of each layer's best epoch on held-out rows, on the CPU."""
    best_kl: list[float]
    epoch: int = 0
    idle: int = 0
    """Epochs since any layer got better."""
    seconds: float = 0.0
    train_kl: list[list[float]] = field(default_factory=list)
    held_out_kl: list[list[float]] = field(default_factory=list)

    def stopped(self, recipe: HeadRecipe) -> str | None:
        """Why training is over: "early stop" or "last epoch"; None while it goes on."""
        if self.epoch >= recipe.epochs:
            return "last epoch"
        return "early stop" if self.idle >= recipe.patience else None


def fit(
    out: Path,
    recipe: HeadRecipe,
    head: Tensor,
    train: Cache,
    held_out: Cache,
    report: Callable[[Fit], bool],
    save_every_s: float = SAVE_EVERY_S,
) -> Fit:
    """Train the heads of all layers side by side; go on from the state in `out` if there is one.

    Args:
        out, recipe: the run's folder; schedule, kind and seed.
        head: E* [V, d] in the dtype of the products.
        train, held_out: the cached states.
        report: called after every epoch; False stops with the state saved.
        save_every_s: seconds between states on disk, in whole epochs.

    Returns:
        The fit, whose `stopped` says whether it is at its end.
    """
    parameters = _initial(recipe, head)
    adam = torch.optim.Adam(parameters, lr=recipe.rate)
    state = Fit(parameters, [p.cpu().clone() for p in parameters], [])
    path = out / STATE / "fit.pt"
    _resume(state, adam, load_state(path))
    state.best_kl = state.best_kl or held_out_kl(head, held_out, parameters)
    saved = began = time.monotonic()
    before_s = state.seconds
    while state.stopped(recipe) is None:
        state.train_kl.append(_epoch(recipe, head, train, parameters, adam, state.epoch))
        _keep_best(state, held_out_kl(head, held_out, parameters))
        state.epoch += 1
        now = time.monotonic()
        state.seconds = before_s + now - began
        over = not report(state) or state.stopped(recipe) is not None
        if over or now - saved >= save_every_s:
            _save(path, state, adam)
            saved = now
        if over:
            break
    return state


def schedule(step: int, steps: int, warm_up: float) -> float:
    """The factor of the rate at a step counted from 0: linear warm-up, then a cosine to 0."""
    rising = max(1, round(warm_up * steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


def chunks(cache: Cache, answers: Sequence[int], head: Tensor) -> list[Tensor]:
    """The states of these answers in pieces whose logits fit, on the head's device."""
    states = torch.cat(list(cache.batch(answers)), dim=1)
    rows = max(64, LOGITS[head.device.type] // head.shape[0])
    return [part.to(head.device) for part in torch.split(states, rows, dim=1)]


def gradients(head: Tensor, states: Tensor, parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The summed KL of each layer, float32 [layers], and its gradients, [layers, *parameter].

    Args:
        head: E* [V, d].
        states: [layers + 1, n, d], the final layer's last, in the head's dtype.
        parameters: per layer, T [d, d] or a head [V, d], float32.
    """
    taught = torch.log_softmax((states[-1] @ head.T).float(), dim=-1)
    target = taught.exp()
    entropy = (target * taught).sum()
    losses, found = [], []
    for x, parameter in zip(states[:-1], parameters, strict=True):
        weight = parameter.to(head.dtype)
        whole = parameter.shape == head.shape
        y = x if whole else x @ weight.T
        student = torch.log_softmax((y @ (weight if whole else head).T).float(), dim=-1)
        losses.append(entropy - (target * student).sum())
        slope = (student.exp_() - target).to(head.dtype)
        found.append((slope if whole else slope @ head).T @ x)
    return torch.stack(losses), torch.stack(found).float()


@torch.no_grad()
def held_out_kl(head: Tensor, cache: Cache, parameters: Sequence[Tensor]) -> list[float]:
    """The mean forward KL of each layer's head over all positions of a cache, in nats."""
    total = torch.zeros(len(parameters), device=head.device)
    matrices = [folded(head, parameter) for parameter in parameters]
    for states in chunks(cache, range(len(cache.workloads)), head):
        taught = torch.log_softmax((states[-1] @ head.T).float(), dim=-1)
        target = taught.exp()
        entropy = (target * taught).sum()
        for layer, (x, matrix) in enumerate(zip(states[:-1], matrices, strict=True)):
            student = torch.log_softmax((x @ matrix.T).float(), dim=-1)
            total[layer] += entropy - (target * student).sum()
    return [float(value) for value in total / cache.positions]


@torch.no_grad()
def _epoch(
    recipe: HeadRecipe,
    head: Tensor,
    train: Cache,
    parameters: list[Tensor],
    adam: torch.optim.Adam,
    epoch: int,
) -> list[float]:
    """One pass over the training answers in an order that the seed and the epoch decide."""
    count = len(train.workloads)
    generator = torch.Generator().manual_seed(recipe.seed * 1_000_003 + epoch)
    order = torch.randperm(count, generator=generator).tolist()
    batches = [order[start : start + recipe.batch] for start in range(0, count, recipe.batch)]
    total = torch.zeros(len(parameters), device=head.device)
    for number, answers in enumerate(batches):
        summed, positions = torch.zeros_like(torch.stack(parameters)), 0
        for states in chunks(train, answers, head):
            losses, found = gradients(head, states, parameters)
            total += losses
            summed += found
            positions += states.shape[1]
        step, steps = epoch * len(batches) + number, recipe.epochs * len(batches)
        for group in adam.param_groups:
            group["lr"] = recipe.rate * schedule(step, steps, recipe.warm_up)
        for parameter, gradient in zip(parameters, summed / positions, strict=True):
            parameter.grad = gradient
        adam.step()
    return [float(value) for value in total / train.positions]


def _initial(recipe: HeadRecipe, head: Tensor) -> list[Tensor]:
    """T = I, or E* itself: before the first step every head is the model's own."""
    if recipe.kind == "full":
        return [head.float().clone() for _ in recipe.layers]
    return [torch.eye(head.shape[1], device=head.device) for _ in recipe.layers]


def _keep_best(state: Fit, kl: list[float]) -> None:
    state.held_out_kl.append(kl)
    state.idle += 1
    for layer, value in enumerate(kl):
        if value < state.best_kl[layer] * (1 - LEAST_GAIN):
            state.idle = 0
        if value < state.best_kl[layer]:
            state.best_kl[layer] = value
            state.best[layer] = state.parameters[layer].detach().cpu().clone()


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
