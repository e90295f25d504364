"""Inputs with which a classifier is timed."""

from __future__ import annotations

from pathlib import Path

from backends.checkpoints import models
from backends.classifiers.config import read
from backends.classifiers.models.shapes import EncoderShape
from workloads import bundled

SEED = 5


def bundled_inputs(directory: Path, count: int) -> list[tuple[int, ...]]:
    """Test inputs of the bundled workload that a network of its kind reads."""
    shape = read(directory).shape
    encoder = isinstance(shape, EncoderShape)
    workload, key = ("sentiment", "sentence") if encoder else ("shapes", "image")
    tokenizer = models.load_tokenizer(directory)
    rows = bundled.rows(workload, "test", count, SEED)
    found = [tuple(tokenizer.encode(str(row[key]))) for row in rows]
    return [ids[: shape.positions] for ids in found] if isinstance(shape, EncoderShape) else found
