"""Training of an EAGLE-3 head: fusion of three layers' states and one decoder layer.

After "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time Test"
(Li et al. 2025, arXiv 2503.01840). The paper leaves the loss's weights and the beginning open: here
each further draft weighs `decay` of the one before it, the fusion begins near the last layer's
states, and the final norm begins as the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends.checkpoints.draft_heads import files as draft_heads
from backends.engine.model.forward import Rotary
from backends.training.drafts.data import DraftData, DraftTexts, divergences
from backends.training.drafts.eagle_head import EagleHead
from backends.training.drafts.recipe import DraftRecipe
from backends.training.exits.fit import FittedBatch, Objective

Fitting = Callable[[Tensor, DraftTexts], list[Tensor]]


def eagle_problem(
    recipe: DraftRecipe, train: DraftData, held_out: DraftData
) -> tuple[Objective, Fitting]:
    """What is to be learnt: all weights side by side as one parameter, and how drafts are made.

    Args:
        recipe: number of drafts, decay and seed.
        train, held_out: the texts.
    """
    backbone = train.backbone
    head = EagleHead(backbone.architecture, len(recipe.layers) + 1)
    device, positions = backbone.head.device, max(train.longest, held_out.longest)
    rotary = Rotary.build(backbone.architecture, positions, device)
    flat = head.initial(backbone.weights.norm, recipe.seed).to(device)

    def drafts(weights: Tensor, found: DraftTexts) -> list[Tensor]:
        made = head.unrolled(weights, found.texts, rotary, recipe.drafts)
        return [head.normed(weights, hidden) for hidden in made]

    def loss(weights: Tensor, found: DraftTexts) -> Tensor:
        sums = divergences(backbone.head, drafts(weights, found), found)
        return torch.stack([own * recipe.decay**i for i, own in enumerate(sums)]).sum()

    @torch.enable_grad()
    def gradient(found: DraftTexts) -> tuple[Tensor, Tensor, int]:
        weights = flat.detach().requires_grad_()
        own = loss(weights, found)
        return own.detach(), torch.autograd.grad(own, weights)[0], len(found.wanted)

    def step(answers: list[int]) -> FittedBatch:
        total, slopes, positions = torch.zeros(1, device=device), torch.zeros_like(flat), 0
        for _, (own, slope, count) in train.over(answers, gradient):
            total += own
            slopes += slope
            positions += count
        return FittedBatch(total, slopes[None], positions)

    def loss_of(found: DraftTexts) -> tuple[float, int]:
        return float(loss(flat, found)), len(found.wanted)

    @torch.no_grad()
    def measure() -> list[float]:
        total, positions = 0.0, 0
        for _, (own, count) in held_out.over(range(len(held_out)), loss_of):
            total += own
            positions += count
        return [total / positions]

    return Objective([flat], len(train), step, measure), drafts


def write_eagle(
    out: Path, recipe: DraftRecipe, data: DraftData, directory: Path, flat: Tensor
) -> None:
    """Write the files that vLLM loads. Raises `OSError`."""
    head = EagleHead(data.backbone.architecture, len(recipe.layers) + 1)
    dtype = data.backbone.head.dtype
    tensors: dict[str, Any] = {
        name: tensor.to("cpu", dtype).contiguous().clone()
        for name, tensor in head.named(flat).items()
    }
    layers = (*recipe.layers, data.backbone.architecture.layers)
    draft_heads.write_files(out, draft_heads.eagle_config(directory, layers), tensors)
