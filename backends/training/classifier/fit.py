"""The training of an exit classifier: one linear layer d -> 2 for all layers, class-balanced.

After "Confident Adaptive Language Modeling" (CALM), section 3.5: cross-entropy of "the top token is
the last layer's", the classes weighted against their imbalance at each layer, averaged over all
layers but the last. The weights are those of its authors' code in t5x, but for shares that are
taken over the training set and not over a batch. The model is frozen; its states are cached.

A residual stream has dimensions a hundred times as loud as others, and louder ones at later layers.
Adam therefore works on states of mean 0 and variance 1, over all layers together, and what it found
is folded into weights for the states as they are: the model is the same, the path to it shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from backends.training.classifier.labels import Labels
from backends.training.exits.cache import Cache
from backends.training.exits.fit import FittedBatch, Objective

NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 28}
"""Numbers of the states that are widened to float32 at once."""


@dataclass(frozen=True)
class Scale:
    """float32 [d] each, over all exit layers and training positions."""

    mean: Tensor
    deviation: Tensor

    def folded(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        """The layer that does to a state what `parameter` [2, d + 1], bias last, does to a scaled
        one: weight float32 [2, d] and bias float32 [2]."""
        slope = parameter[:, :-1].double() / self.deviation
        bias = parameter[:, -1].double() - slope @ self.mean.double()
        return slope.float(), bias.float()


def scale_of(cache: Cache, device: torch.device) -> Scale:
    """Mean and standard deviation of every dimension, in one pass summed in float64."""
    count, width = 0, cache.states.shape[2]
    total = torch.zeros(width, dtype=torch.float64, device=device)
    squares = torch.zeros_like(total)
    for states in _pieces(cache, torch.arange(cache.positions), device):
        flat = states.flatten(0, 1).double()
        total += flat.sum(dim=0)
        squares += flat.square().sum(dim=0)
        count += len(flat)
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=1e-12).sqrt()
    return Scale(mean.float(), deviation.float())


def class_weights(shares: Tensor) -> Tensor:
    """The weight of a position that differs and of one that agrees, at each layer.

    Each class weighs as the other's share: within a layer both count alike, and a layer counts the
    less the rarer its rarer class, for p of one class and 1 - p of the other weigh 2 p (1 - p) in
    all. So the layers that have most to tell apart lead. All are divided by their mean over layers
    and positions: a classifier that says nothing has a loss of ln 2.

    Args:
        shares: [layers], how many positions agree; some layer has both classes.

    Returns:
        float64 [2, layers].
    """
    return torch.stack([shares, 1 - shares]) / (2 * shares * (1 - shares)).mean()


def classifier_problem(
    train: Cache,
    held_out: Cache,
    labels: tuple[Labels, Labels],
    scale: Scale,
    device: torch.device,
) -> Objective:
    """What is to be learnt: a single parameter [2, d + 1], the bias last, on scaled states.

    The gradient is written out: with z = W x + b, dCE/dz = softmax(z) - onehot.

    Args:
        train, held_out: states of the residual stream.
        labels: theirs; each set is balanced by its own shares, over all of its positions.
        scale: of the training states.
        device: where to compute.
    """
    taught, asked = labels
    parameter = torch.zeros(2, train.states.shape[2] + 1, device=device)

    def over(cache: Cache, known: Labels, places: Tensor) -> Iterator[tuple[Tensor, ...]]:
        weights = class_weights(known.shares()).float().to(device)
        marks = torch.split(known.agrees[:, places], _rows(cache, device), dim=1)
        for states, agrees in zip(_pieces(cache, places, device), marks, strict=True):
            x = (states - scale.mean) / scale.deviation
            log = torch.log_softmax(x @ parameter[:, :-1].T + parameter[:, -1], dim=-1)
            own = agrees.to(device)
            yield x, log, own, torch.where(own, weights[1, :, None], weights[0, :, None])

    def step(answers: list[int]) -> FittedBatch:
        places = torch.cat([torch.arange(*train.starts[i : i + 2]) for i in answers])
        loss, slope = torch.zeros(1, device=device), torch.zeros_like(parameter)
        for x, log, agrees, weight in over(train, taught, places):
            loss += _loss(log, agrees, weight)
            wanted = torch.stack([~agrees, agrees], dim=-1).float()
            error = ((log.exp() - wanted) * weight[..., None]).flatten(0, 1) / len(x)
            slope[:, :-1] += error.T @ x.flatten(0, 1)
            slope[:, -1] += error.sum(dim=0)
        return FittedBatch(loss, slope[None], len(places))

    def measure() -> list[float]:
        places = torch.arange(held_out.positions)
        found = [_loss(*rest) for _, *rest in over(held_out, asked, places)]
        return [float(torch.stack(found).sum() / held_out.positions)]

    return Objective([parameter], len(train.workloads), step, measure)


def _loss(log: Tensor, agrees: Tensor, weight: Tensor) -> Tensor:
    """The weighted cross-entropy summed over positions, averaged over layers."""
    return (-torch.where(agrees, log[..., 1], log[..., 0]) * weight).sum() / len(log)


def _pieces(cache: Cache, places: Tensor, device: torch.device) -> Iterator[Tensor]:
    """The exit layers' states at some positions, float32 [layers, n, d], a few at a time."""
    for part in torch.split(places, _rows(cache, device)):
        yield cache.states[:-1, part].to(device).float()


def _rows(cache: Cache, device: torch.device) -> int:
    layers, _, width = cache.states.shape
    return max(16, NUMBERS[device.type] // (layers * width))
