"""How the bundled classifiers are trained, and on what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from backends.classifiers.models.shapes import EncoderShape, ResidualShape
from workloads.bundled import iter_rows
from workloads.labelled import LABELS, images

HELD_OUT_SEED = 1_000_003
"""Of rows that only tell how far the training is."""


@dataclass(frozen=True, slots=True)
class LabelRecipe:
    """Of both classifiers: rows are drawn anew at every step, from the train split."""

    workload: str
    steps: int
    batch: int
    rate: float
    ramp_rows: int = 16_384
    """Rows whose states the ramps learn from, once the network is trained (DeeBERT's second stage);
    0 trains ramps and network together (BranchyNet)."""
    ramp_epochs: int = 8
    ramp_rate: float = 1e-3
    ramp_weight: float = 0.5
    """Of each ramp's cross-entropy beside the final classifier's, where they are trained together.
    """
    seed: int = 0


SENTIMENT = LabelRecipe("sentiment", steps=2400, batch=64, rate=5e-4)
SHAPES = LabelRecipe("shapes", steps=2400, batch=64, rate=2e-3, ramp_rows=0)
RESIDUAL = ResidualShape(
    widths=(16, 16, 32, 32, 64, 64), side=images.SIDE, classes=len(LABELS["shapes"])
)


def encoder(vocabulary: int) -> EncoderShape:
    """The bundled encoder."""
    return EncoderShape(
        layers=8,
        width=128,
        heads=4,
        feed_forward=256,
        vocabulary=vocabulary,
        positions=64,
        types=2,
        classes=len(LABELS["sentiment"]),
    )


def labelled_rows(workload: str, seed: int) -> Iterator[tuple[str, int]]:
    """Yield contents and label numbers of train rows, without end."""
    content = {"sentiment": "sentence", "shapes": "image"}[workload]
    for row in iter_rows(workload, "train", seed):
        yield row[content], LABELS[workload].index(row["label"])


def batches(recipe: LabelRecipe) -> Iterator[list[tuple[str, int]]]:
    """Yield the rows of each step."""
    rows = labelled_rows(recipe.workload, recipe.seed)
    for _ in range(recipe.steps):
        yield list(islice(rows, recipe.batch))
