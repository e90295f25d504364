"""Inputs that a classifier reads: which workloads have them, and those with which it is timed."""

from __future__ import annotations

from pathlib import Path

from backends.checkpoints import models
from backends.classifiers.config import FAMILIES, RESIDUAL, read
from backends.classifiers.models.shapes import EncoderShape
from harness.core.errors import UserError
from workloads import bundled, workload_info

SEED = 5


def check_inputs(model: str, directory: Path, workload: str) -> None:
    """Raise `UserError` for drawings where the network reads sentences, and the reverse."""
    family = FAMILIES.get(str(models.architecture(directory)))
    has_drawings = workload_info(workload).content == "image"
    if family is None or (family == RESIDUAL) == has_drawings:
        return
    takes, has, fitting, other = (
        ("sentences", "drawings", "demo-shapes", "sentiment")
        if has_drawings
        else ("drawings", "sentences", "demo-sentiment", "shapes")
    )
    raise UserError(
        f"model '{model}' takes {takes}; workload '{workload}' has {has}; "
        f"expected model '{fitting}' or workload '{other}'"
    )


def bundled_inputs(directory: Path, count: int) -> list[tuple[int, ...]]:
    """Test inputs of the bundled workload that a network of its kind reads."""
    shape = read(directory).shape
    encoder = isinstance(shape, EncoderShape)
    workload, key = ("sentiment", "sentence") if encoder else ("shapes", "image")
    tokenizer = models.load_tokenizer(directory)
    rows = bundled.rows(workload, "test", count, SEED)
    found = [tuple(tokenizer.encode(str(row[key]))) for row in rows]
    return [ids[: shape.positions] for ids in found] if isinstance(shape, EncoderShape) else found
