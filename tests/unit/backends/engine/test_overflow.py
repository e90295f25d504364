"""Logits that are NaN, of finite weights too: no token, and an error where one is to be emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from backends.engine.decoder import Decoder
from backends.engine.drafters.base import Drafter
from backends.engine.drafters.draft_model import DraftModel
from backends.engine.drafters.trees.lookahead import LookAhead
from backends.engine.executors.base import StepRows
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import EngineError
from backends.engine.model.heads import ExitHead
from backends.engine.sampling import GREEDY, TokenSampling
from backends.engine.streams import Output, Stream
from tests.support.engine.exit_streams import kinds
from tests.support.engine.random_models import RandomModel, random_model

samplings = pytest.mark.parametrize("sampling", [GREEDY, TokenSampling(1.0, 0.9, 1)], ids=str)
WRONG = 96
"""A token that no text here has."""
ROWS = StepRows.of([(0, 0, 3), (0, 1, 4)])
BOTH = np.arange(2, dtype=np.int32)


def overflowing() -> RandomModel:
    """Finite weights, whose products float16 cannot hold."""
    model = random_model("llama", torch.float16)
    layers = tuple(replace(one, gate_up=one.gate_up * 400) for one in model.weights.layers)
    assert all(layer.gate_up.isfinite().all() for layer in layers)
    return replace(model, weights=replace(model.weights, layers=layers))


def opened(kind: Any, model: RandomModel, heads: Sequence[ExitHead] = ()) -> Any:
    return kind(model.weights, model.architecture, heads, slots=1, max_len=64)


def decode(decoder: Decoder, sampling: TokenSampling) -> list[Output]:
    decoder.add(Stream("a", (3, 4, 5), 8, sampling=sampling))
    outputs: list[Output] = []
    while not (outputs and outputs[-1].finished):
        outputs += decoder.step()
    return outputs


def text(outputs: Sequence[Output]) -> list[int]:
    return [token for output in outputs for token in output.tokens]


@kinds
@samplings
@pytest.mark.parametrize("margins", [False, True])
def test_an_overflow_is_an_error_and_no_token(
    kind: Any, sampling: TokenSampling, margins: bool
) -> None:
    decoder = Decoder(opened(kind, overflowing()), margins=margins)
    with pytest.raises(
        EngineError, match=r"request a: position \d+: the final head's logits are N"
    ):
        decode(decoder, sampling)


@kinds
@samplings
def test_an_overflow_in_a_tree_is_an_error_and_no_token(kind: Any, sampling: TokenSampling) -> None:
    executor = opened(kind, random_model("llama", torch.float16))
    broken = opened(kind, overflowing())
    executor.trees = broken.trees
    decoder = Decoder(executor, LookAhead(64, 2, 2, 2))
    with pytest.raises(EngineError, match="position 3: the final head's logits are NaN"):
        decode(decoder, sampling)


@kinds
@samplings
def test_a_draft_model_that_overflows_drafts_nothing(kind: Any, sampling: TokenSampling) -> None:
    model = random_model("llama", torch.float16)
    plain = text(decode(Decoder(opened(kind, model)), sampling))
    drafter = DraftModel(opened(kind, overflowing()), 4, threshold=0.0)
    outputs = decode(Decoder(opened(kind, model), drafter), sampling)
    assert text(outputs) == plain
    assert not sum(output.counts.get("drafted", 0) for output in outputs)


@samplings
def test_an_overflow_after_a_draft_that_falls_is_none_of_the_text(sampling: TokenSampling) -> None:
    """In torch. The C++ kernels read the values of 32 positions together, those ahead times 0: what
    overflowed there is an error here."""
    kind, model = TorchExecutor, random_model("llama", torch.float16)
    model.weights.embedding[WRONG] = torch.inf
    plain = text(decode(Decoder(opened(kind, model)), sampling))
    assert WRONG not in plain
    found = text(decode(Decoder(opened(kind, model), _Wrong()), sampling))
    assert found == plain


@kinds
def test_a_shortlist_has_no_token_for_nan(kind: Any) -> None:
    model = overflowing()
    matrix, ids = model.weights.head[[7, 9]].contiguous(), torch.tensor([7, 9])
    executor = opened(kind, model, [ExitHead(4, matrix, ids)])
    tokens, sure = executor.advance(0, ROWS, BOTH)
    assert tokens == [-1, -1]
    assert np.isnan(sure).all()


@kinds
@pytest.mark.parametrize("at", [0, 1, 63, 70, 130, 199])
@pytest.mark.parametrize("margin", [False, True])
def test_one_logit_that_is_no_number_is_enough(kind: Any, at: int, margin: bool) -> None:
    model = random_model("llama", torch.float32)
    ids = torch.arange(200) % len(model.weights.head)
    head = model.weights.head[ids].contiguous()
    executor = opened(kind, model, [ExitHead(4, head, ids, margin=margin)])
    assert min(executor.advance(0, ROWS, BOTH)[0]) >= 0
    head = head.clone()
    head[at] = torch.nan
    executor = opened(kind, model, [ExitHead(4, head, ids, margin=margin)])
    tokens, sure = executor.advance(0, ROWS, BOTH)
    assert tokens == [-1, -1]
    assert np.isnan(sure).all()


def test_a_window_goes_on_without_what_is_no_token() -> None:
    stream = Stream("a", (3, 4, 5), 8, tokens=[3, 4, 5, 6], done=[3])
    drafter = LookAhead(64, 4, 3, 2)
    for told in ([8, 9, -1, 7], [1, 2, 3, 4], [-1] * 4):
        (guesses,) = drafter.grow([stream])
        assert min(guesses.tokens) >= 0
        drafter.told(stream, told)


class _Wrong(Drafter):
    """One draft a step, which never stands."""

    exits = ()
    max_drafts = 1

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        for stream in streams:
            stream.tokens += [WRONG] * max(stream.room(1), 0)
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        assert not accepted
        return {}

    def reset(self) -> None:
        raise AssertionError
