"""A d -> 1 probe per exit layer: is it worth evaluating the head here at all?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from backends.training.exits.cache import Cache
from backends.training.heads.report import Outputs

GAMMA = 0.75
"""The confidence over which a right token counts; the paper's gamma."""
POSITIONS = 20_000
"""Training positions that a probe is fitted on, at the most."""
DECAY = 1e-3


@dataclass(frozen=True)
class Probe:
    """Logistic regression on the normed state: sigmoid(state @ weights[:d] + weights[d])."""

    weights: Tensor
    """float32 [d + 1], the bias last."""
    report: dict[str, Any]
    """`gamma`, `positives` (share of held-out positions worth it) and the held-out `auc`."""


def worth(out: Outputs, layer: int) -> Tensor:
    """Where the layer's head is right and confident: bool [positions]."""
    return out.agrees[:, layer] & (out.confidence[:, layer] > GAMMA)


def fit_probe(
    train: Cache, train_outputs: Outputs, held_out: Cache, held_outputs: Outputs, layer: int
) -> Probe:
    """Fit one layer's probe by L-BFGS on states scaled to unit variance, and measure it.

    Where the label never changes, the probe is a constant and its AUC is null.
    """
    states = train.states[layer].float()
    labels = worth(train_outputs, layer).float()
    mean, scale = states.mean(dim=0), states.std(dim=0, unbiased=False).clamp(min=1e-6)
    share = float(labels.mean().clamp(1e-4, 1 - 1e-4))
    slope = torch.zeros(states.shape[1])
    bias = torch.tensor(share).logit()
    if 0 < labels.sum() < len(labels):
        slope, bias = _regress((states - mean) / scale, labels, bias)
    slope = slope / scale
    weights = torch.cat([slope, (bias - mean @ slope)[None]])
    held_states = held_out.states[layer].float()
    scores = held_states @ weights[:-1] + weights[-1]
    held_labels = worth(held_outputs, layer)
    found = auc(scores, held_labels)
    report = {
        "gamma": GAMMA,
        "positives": round(float(held_labels.float().mean()), 5),
        "auc": None if found is None else round(found, 5),
    }
    return Probe(weights, report)


def auc(scores: Tensor, labels: Tensor) -> float | None:
    """Area under the ROC curve: the chance that a true one scores above a false one, ties half.

    None when the labels are all the same.
    """
    positive, negative = int(labels.sum()), int((~labels).sum())
    if not positive or not negative:
        return None
    _, inverse, count = torch.unique(scores, return_inverse=True, return_counts=True)
    last = count.cumsum(0).double()
    rank = last - (count - 1) / 2
    total = float(rank[inverse][labels].sum())
    return (total - positive * (positive + 1) / 2) / (positive * negative)


def _regress(states: Tensor, labels: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    slope = torch.zeros(states.shape[1], requires_grad=True)
    offset = bias.clone().requires_grad_()
    solver = torch.optim.LBFGS(
        [slope, offset], max_iter=60, history_size=10, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        solver.zero_grad()
        value = functional.binary_cross_entropy_with_logits(states @ slope + offset, labels)
        value = value + DECAY * slope.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    solver.step(loss)  # type: ignore[no-untyped-call]
    return slope.detach(), offset.detach()
