"""What trained draft heads depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from backends.training.exits.recipe import ExitRecipe
from harness.core.errors import UserError

MOST_DRAFTS = 15


@dataclass(frozen=True, slots=True)
class DraftRecipe(ExitRecipe):
    """Everything that the training of draft heads depends on; `layers` are the states read besides
    the last layer's."""

    kind: str = "eagle3"
    """One of `draft_heads.KINDS`."""
    epochs: int = 12
    rate: float = 2e-3
    batch: int = 32
    drafts: int = 3
    """Tokens drafted in a row that are trained for."""
    decay: float = 0.8
    """Weight of each draft's loss against that of the one before it."""


def check_draft_recipe(recipe: DraftRecipe) -> None:
    """Raise `UserError` for values that no training of draft heads can use."""
    if not 1 <= recipe.drafts <= MOST_DRAFTS:
        raise UserError(f"--drafts: expected 1 to {MOST_DRAFTS}, got {recipe.drafts}")
    if not (math.isfinite(recipe.decay) and 0 < recipe.decay <= 1):
        raise UserError(f"--decay: expected more than 0 and at most 1, got {recipe.decay}")


def fused_layers(depth: int) -> tuple[int, ...]:
    """A low, a middle and the last layer, whose states are fused; fewer where they coincide."""
    return tuple(sorted({min(2, depth), depth // 2 + 1 if depth > 1 else 1, depth}))
