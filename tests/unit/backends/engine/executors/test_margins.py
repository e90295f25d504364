"""Exit heads that measure how far the best token is above the second, and what they read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from backends.engine.executors.base import RING, StepRows
from backends.engine.model.forward import final_logits, hidden_states
from backends.engine.model.heads import ExitHead
from tests.support.engine.exit_streams import Kind, kinds
from tests.support.engine.random_models import RandomModel, random_model

ALL = np.arange(12, dtype=np.int32)


def opened(kind: Kind, model: RandomModel, heads: list[ExitHead]) -> Any:
    return kind(model.weights, model.architecture, heads, slots=2, max_len=64)


def margins(model: RandomModel) -> list[ExitHead]:
    return [replace(head, margin=True) for head in model.heads((2,))]


def asked(run: Any, model: RandomModel, slot: int = 1) -> StepRows:
    """Twelve rows after a prompt of three, behind the first segment."""
    ids = np.random.default_rng(1).integers(model.architecture.vocabulary, size=15).tolist()
    run.prefill(slot, ids[:3])
    rows = StepRows.span(slot, 3, ids[3:])
    run.segment(0, rows)
    return rows


@kinds
@pytest.mark.parametrize("name", ["llama", "tied", "odd-vocabulary-wide"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_margin_is_the_best_probability_less_the_second(
    name: str, dtype: torch.dtype, kind: Kind
) -> None:
    model = random_model(name, dtype)
    run = opened(kind, model, margins(model))
    rows = asked(run, model)
    tokens, found = run.exit_head(0, rows)
    logits = run.logits(rows, 0)
    best = logits.softmax(-1).topk(2).values
    assert tokens == logits.argmax(-1).tolist()
    assert torch.allclose(torch.tensor(found), best[:, 0] - best[:, 1], atol=1e-6)
    assert run.advance(0, rows, ALL) == (tokens, found)
    plain = opened(kind, model, model.heads((2,)))
    again, sure = plain.exit_head(0, asked(plain, model))
    assert again == tokens
    assert torch.allclose(torch.tensor(sure), best[:, 0], atol=1e-6)


@kinds
def test_the_last_head_has_its_own_logits_and_no_margin(kind: Kind) -> None:
    model = random_model("llama")
    run = opened(kind, model, margins(model))
    rows = asked(run, model)
    assert not torch.equal(run.logits(rows, 0), run.logits(rows))
    run.segment(1, rows)
    assert torch.equal(run.logits(rows), run.logits(rows, 1))
    best = run.logits(rows).softmax(-1).max(-1).values
    _, found = run.exit_head(1, rows)
    assert torch.allclose(torch.tensor(found), best, atol=1e-6)


@kinds
@pytest.mark.parametrize("place", [(3, 40), (0, 1), (5, 96)], ids=str)
def test_two_that_are_equal_leave_no_margin(place: tuple[int, int], kind: Kind) -> None:
    """Near one another and far, in one block of the head or two."""
    model = random_model("llama")
    matrix = model.weights.head.clone()
    matrix[place[0]] *= 40
    matrix[place[1]] = matrix[place[0]]
    run = opened(kind, model, [ExitHead(2, matrix, margin=True)])
    rows = asked(run, model)
    tokens, found = run.exit_head(0, rows)
    tied = [sure for token, sure in zip(tokens, found, strict=True) if token == place[0]]
    assert tied
    assert tied == [0.0] * len(tied)


@kinds
def test_boundaries_show_the_states_that_wait(kind: Kind) -> None:
    model = random_model("llama")
    run = opened(kind, model, model.heads((2,)))
    rows = asked(run, model)
    ids = np.random.default_rng(1).integers(97, size=15).tolist()
    expected = hidden_states(model.weights, model.architecture, torch.tensor([ids]), (2,))[2][0, 3:]
    found = run.boundary(1)[1, rows.positions % RING].float()
    assert torch.allclose(found, expected, atol=1e-4)
    logits = final_logits(model.weights, found)
    assert torch.allclose(logits, run.logits(rows, 0), atol=1e-3)
