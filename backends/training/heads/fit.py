"""The training of exit heads on cached states: forward KL to the final layer's distribution.

The gradient is written out, so that one pass over a few hundred positions at a time needs no
graph and a vocabulary of 128k fits: with z = E T x and p = softmax(z), dKL(p* || p)/dz = p - p*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from backends.engine.model.heads import folded
from backends.training.exits.cache import Cache
from backends.training.exits.fit import FittedBatch, Objective
from backends.training.exits.recipe import ExitRecipe

LOGITS = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Logits computed at once: what fits a cache, or a GPU beside the model."""


def heads_problem(recipe: ExitRecipe, head: Tensor, train: Cache, held_out: Cache) -> Objective:
    """The heads of all layers side by side: T [d, d], or a head [V, d], for each.

    Args:
        recipe: layers and kind.
        head: E* [V, d] in the dtype of the products.
        train, held_out: the cached states.
    """
    parameters = _initial(recipe, head)

    def step(answers: list[int]) -> FittedBatch:
        losses = torch.zeros(len(parameters), device=head.device)
        summed, positions = torch.zeros_like(torch.stack(parameters)), 0
        for states in chunks(train, answers, head):
            own, found = gradients(head, states, parameters)
            losses += own
            summed += found
            positions += states.shape[1]
        return FittedBatch(losses, summed, positions)

    def measure() -> list[float]:
        return held_out_kl(head, held_out, parameters)

    return Objective(parameters, len(train.workloads), step, measure)


def chunks(
    cache: Cache, answers: Sequence[int], head: Tensor, exits: Sequence[int] | None = None
) -> Iterator[Tensor]:
    """The states of these answers in pieces whose logits fit, on the head's device, one at a time:
    all of them may be larger than its memory. `exits`: the places of those wanted, before the last
    layer's; None: all."""
    kept = None if exits is None else [*exits, len(cache.states) - 1]
    rows = max(64, LOGITS[head.device.type] // head.shape[0])
    held: list[Tensor] = []
    for number, states in enumerate(cache.batch(answers), 1):
        held.append(states if kept is None else states[kept])
        count = sum(part.shape[1] for part in held)
        if count < rows and number < len(answers):
            continue
        whole = torch.cat(held, dim=1)
        ends = count if number == len(answers) else count - count % rows
        for start in range(0, ends, rows):
            yield whole[:, start : min(start + rows, ends)].to(head.device)
        held = [whole[:, ends:]]


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
    found = (_layer_kl(head, cache, layer, one) for layer, one in enumerate(parameters))
    return [float(total / cache.positions) for total in found]


def _layer_kl(head: Tensor, cache: Cache, layer: int, parameter: Tensor) -> Tensor:
    """The KL of one layer's head, summed over positions. Its matrix, which may be as large as the
    model's head, is gone before the next one's is made."""
    total, matrix = torch.zeros((), device=head.device), folded(head, parameter)
    for x, final in chunks(cache, range(len(cache.workloads)), head, [layer]):
        taught = torch.log_softmax((final @ head.T).float(), dim=-1)
        target = taught.exp()
        student = torch.log_softmax((x @ matrix.T).float(), dim=-1)
        total += (target * taught).sum() - (target * student).sum()
    return total


def _initial(recipe: ExitRecipe, head: Tensor) -> list[Tensor]:
    """T = I, or E* itself: before the first step every head is the model's own."""
    if recipe.kind == "full":
        return [head.float().clone() for _ in recipe.layers]
    return [torch.eye(head.shape[1], device=head.device) for _ in recipe.layers]
