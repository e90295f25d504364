"""What the search for a set of sublayers depends on, checked before any work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backends.engine.executors.base import RING
from backends.own.drafting.sublayer_sets import ABOUT
from backends.training.exits.recipe import ExitRecipe, check_recipe
from harness.core.errors import UserError

HELD_OUT = 2
"""Rows that the set is tried on at the end, for each that it was searched on."""


@dataclass(frozen=True, slots=True)
class SublayerRecipe:
    """The defaults are those of the AdaDecode paper's baseline (appendix C): 4 rows of each task's
    train split, 200 iterations, at most 12 drafts, threshold 0.6."""

    workloads: tuple[str, ...]
    source: str = "bundled"
    rows: int = 4
    """Of each workload."""
    iterations: int = 200
    drafts: int = 12
    threshold: float = 0.6
    seed: int = 0
    dtype: str = "float32"
    revision: str | None = None
    """Of a hub id."""
    workload_options: Mapping[str, Mapping[str, Any]] | None = None
    """As `ExitRecipe` has them."""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON holds them."""
        return asdict(self) | {"workloads": list(self.workloads)}

    def prompts(self) -> ExitRecipe:
        """The same rows as a recipe of prompts, with those that are held out."""
        rows = self.rows * (1 + HELD_OUT)
        return ExitRecipe(
            *("", (), self.workloads, "sublayers", self.source, rows),
            seed=self.seed,
            held_out=HELD_OUT / (1 + HELD_OUT),
            workload_options=self.workload_options,
        )


def check(recipe: SublayerRecipe, out: Path) -> None:
    """Raise `UserError` for values that no search can use, and for a folder that holds a set
    already: a search is short, and is not resumed."""
    for option, value, most in (
        ("rows", recipe.rows, None),
        ("iterations", recipe.iterations, None),
        ("drafts", recipe.drafts, RING - 1),
    ):
        if value < 1 or (most is not None and value > most):
            expected = "at least 1" if most is None else f"1 to {most}"
            raise UserError(f"--{option}: expected {expected}, got {value}")
    if not 0 <= recipe.threshold <= 1:
        raise UserError(f"--threshold: expected 0 to 1, got {recipe.threshold}")
    check_recipe(recipe.prompts())
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file; expected a folder")
    if (out / ABOUT).exists():
        raise UserError(f"--out: {out} has a set already; choose another folder")
