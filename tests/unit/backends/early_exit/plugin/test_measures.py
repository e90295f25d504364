"""Confidence measures that remember a step's earlier exits."""

from __future__ import annotations

import pytest
import torch

from backends.early_exit.plugin.measures import State


def test_each_exit_is_compared_with_the_one_before() -> None:
    """The embedding and two exits, 60 degrees apart: from the second exit the embedding is 120."""
    turned = torch.tensor([0.0, 1 / 3, 2 / 3]) * torch.pi
    embedded, first, second = torch.stack([turned.cos(), turned.sin()], -1)[:, None]
    measure = State()
    for _ in range(2):  # the second step begins anew
        measure.begin(embedded)
        assert measure(2, first).confidence.tolist() == pytest.approx([0.5])
        assert measure(5, second).confidence.tolist() == pytest.approx([0.5])
