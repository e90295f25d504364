"""The models that kernels are timed on are the shapes that users name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from backends.checkpoints.shapes.ladder import LADDER
from backends.checkpoints.shapes.sizes import read_sizes
from backends.engine.model.dimensions import Dimensions
from benchmarks.support.size_model import SIZES, architecture, products, random_weights


@pytest.mark.parametrize("name", SIZES)
def test_they_are_the_ladders(name: str) -> None:
    made, named = architecture(name), read_sizes(LADDER[name], name)
    for field in fields(Dimensions):
        assert getattr(made, field.name) == getattr(named, field.name), field.name


def test_the_weights_have_the_shapes_sizes() -> None:
    weights = random_weights(architecture("0.1b"))
    numbers = sum(matrix.numel() for matrix in [*products(weights), weights.head])
    norms = (2 * 12 + 1) * 768
    assert numbers == read_sizes(LADDER["0.1b"], "0.1b").parameters - norms
