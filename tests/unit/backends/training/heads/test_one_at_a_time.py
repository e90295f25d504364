"""At 8B a folded head is a gigabyte: of any number of layers one lies in memory at a time."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from backends.engine.model import heads as engine_heads
from backends.training.exits.cache import Cache
from backends.training.heads import fit as heads_fit
from backends.training.heads import report as heads_report

LAYERS, WIDTH, VOCABULARY = 5, 8, 37


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many folded heads there are each time that one is made, itself counted."""
    alive: list[Any] = []
    counts: list[int] = []

    def noted(head: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
        found = engine_heads.folded(head, parameter)
        alive.append(weakref.ref(found))
        counts.append(sum(one() is not None for one in alive))
        return found

    for module in (heads_fit, heads_report):
        monkeypatch.setattr(module, "folded", noted)
    return counts


def test_heads_are_measured_layer_by_layer(most: list[int]) -> None:
    torch.manual_seed(0)
    head = torch.randn(VOCABULARY, WIDTH)
    cache = Cache(torch.randn(LAYERS + 1, 130, WIDTH), [0, 60, 130], ["gsm8k", "xsum"])
    parameters = [torch.eye(WIDTH) + 0.1 * torch.randn(WIDTH, WIDTH) for _ in range(LAYERS)]
    kl = heads_fit.held_out_kl(head, cache, parameters)
    found = heads_report.outputs(head, cache, parameters)
    assert most == [1] * (2 * LAYERS)
    taught = (cache.states[-1] @ head.T).log_softmax(-1)
    for layer, parameter in enumerate(parameters):
        own = (cache.states[layer] @ parameter.T @ head.T).log_softmax(-1)
        each = (taught.exp() * (taught - own)).sum(-1)
        torch.testing.assert_close(found.kl[:, layer], each, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.confidence[:, layer], own.max(-1).values.exp())
        assert torch.equal(found.agrees[:, layer], own.argmax(-1) == taught.argmax(-1))
        assert kl[layer] == pytest.approx(float(each.mean()), rel=1e-4)
    plain = heads_report.outputs(head, cache, [None] * LAYERS)
    assert len(most) == 2 * LAYERS, "the model's own head is not folded"
    assert torch.equal(
        plain.agrees[:, 0], (cache.states[0] @ head.T).argmax(-1) == taught.argmax(-1)
    )
