"""Inputs that a classifier reads: which workloads have them, and those with which it is timed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backends.checkpoints import models
from backends.classifiers.config import FAMILIES, RESIDUAL, read
from backends.classifiers.models.shapes import EncoderShape
from harness.core.errors import UserError
from harness.core.nouns import Model, Trial
from workloads import bundled, workload_info

SEED = 5


def check_inputs(trials: Sequence[Trial]) -> None:
    """Raise `UserError` for drawings where a network reads sentences, and the reverse."""
    asked = [one for one in trials if workload_info(one.workload.name).answer == "label"]
    networks = {one.model.label(): one.model for one in asked}
    reads = {label: _reads_drawings(model) for label, model in networks.items()}
    names = {one.workload.name for one in asked}
    drawn = {name: workload_info(name).content == "image" for name in names}
    for one in asked:
        model, workload = one.model.label(), one.workload.name
        if reads[model] in (None, drawn[workload]):
            continue
        takes, has, fitting, other = (
            ("sentences", "drawings", "demo-shapes", "sentiment")
            if drawn[workload]
            else ("drawings", "sentences", "demo-sentiment", "shapes")
        )
        expected = f"expected model '{fitting}' or workload '{other}'"
        if drawn[workload] in reads.values() and reads[model] in drawn.values():
            expected = "run these models apart"
        raise UserError(
            f"model '{model}' takes {takes}; workload '{workload}' has {has}; {expected}"
        )


def _reads_drawings(model: Model) -> bool | None:
    """None of what is no classifier."""
    family = FAMILIES.get(str(models.architecture(models.resolve(model, weights=False))))
    return None if family is None else family == RESIDUAL


def bundled_inputs(directory: Path, count: int) -> list[tuple[int, ...]]:
    """Test inputs of the bundled workload that a network of its kind reads."""
    shape = read(directory).shape
    encoder = isinstance(shape, EncoderShape)
    workload, key = ("sentiment", "sentence") if encoder else ("shapes", "image")
    tokenizer = models.load_tokenizer(directory)
    rows = bundled.rows(workload, "test", count, SEED)
    found = [tuple(tokenizer.encode(str(row[key]))) for row in rows]
    return [ids[: shape.positions] for ids in found] if isinstance(shape, EncoderShape) else found
