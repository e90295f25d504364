"""Training of Medusa heads: a residual block per draft on the frozen model's last state.

Medusa-1 of "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads" (Cai
et al. 2024, arXiv 2401.10774), section 2.2.1, with the target's distribution in the place of one
token as in its section 2.3.2, and the target's own head behind every block.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from backends.checkpoints.draft_heads import files as draft_heads
from backends.training.drafts.data import DraftData, DraftTexts, divergences
from backends.training.drafts.recipe import DraftRecipe
from backends.training.exits.fit import FittedBatch, Objective

Guessing = Callable[[Tensor, DraftTexts], list[Tensor]]


def medusa_drafts(weights: Tensor, found: DraftTexts) -> list[Tensor]:
    """What goes into the target's head for every draft, [B, A, d] each.

    Column a of draft j reads the state of j positions before: x + silu(W_j x).

    Args:
        weights: [drafts, d, d].
        found: the texts.
    """
    made = []
    for draft, own in enumerate(weights):
        x = functional.pad(found.final, (0, 0, draft, 0))[:, : found.final.shape[1]]
        made.append(x + functional.silu(functional.linear(x, own.to(x.dtype))))
    return made


def medusa_problem(
    recipe: DraftRecipe, train: DraftData, held_out: DraftData
) -> tuple[Objective, Guessing]:
    """What is to be learnt: a matrix for every draft, zero at first as in the paper.

    Args:
        recipe: number of drafts.
        train, held_out: the texts.
    """
    head = train.backbone.head
    width, device = head.shape[1], head.device
    parameters = [torch.zeros(width, width, device=device) for _ in range(recipe.drafts)]

    @torch.enable_grad()
    def gradient(found: DraftTexts) -> tuple[Tensor, Tensor, int]:
        weights = torch.stack(parameters).requires_grad_()
        sums = torch.stack(divergences(head, medusa_drafts(weights, found), found))
        slopes = torch.autograd.grad(sums.sum(), weights)[0]
        return sums.detach(), slopes, len(found.wanted)

    def step(answers: list[int]) -> FittedBatch:
        losses = torch.zeros(recipe.drafts, device=device)
        slopes, positions = torch.zeros(recipe.drafts, width, width, device=device), 0
        for _, (sums, slope, count) in train.over(answers, gradient):
            losses += sums
            slopes += slope
            positions += count
        return FittedBatch(losses, slopes, positions)

    def losses_of(found: DraftTexts) -> tuple[Tensor, int]:
        made = medusa_drafts(torch.stack(parameters), found)
        return torch.stack(divergences(head, made, found)).cpu(), len(found.wanted)

    @torch.no_grad()
    def measure() -> list[float]:
        total, positions = torch.zeros(recipe.drafts), 0
        for _, (sums, count) in held_out.over(range(len(held_out)), losses_of):
            total += sums
            positions += count
        return [float(value) for value in total / positions]

    return Objective(parameters, len(train), step, measure), medusa_drafts


def write_medusa(
    out: Path, recipe: DraftRecipe, data: DraftData, directory: Path, weights: Tensor
) -> None:
    """Write the files that vLLM loads, a copy of the target's head among them, which vLLM does not
    share with Medusa. Raises `OSError`."""
    head = data.backbone.head
    tensors = {
        f"blocks.{draft}.layers.0.weight": own.to("cpu", head.dtype).contiguous().clone()
        for draft, own in enumerate(weights)
    }
    tensors["lm_heads.0.weight"] = head.cpu().contiguous().clone()
    draft_heads.write_files(out, draft_heads.medusa_config(directory, recipe.drafts), tensors)
