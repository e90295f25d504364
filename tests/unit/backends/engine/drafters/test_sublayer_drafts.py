"""Drafts of a thinned model: the text of plain decoding on torch too, and a set that is found."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from backends.engine.decoder import Decoder
from backends.engine.drafters.sublayers import SublayerDrafts
from backends.engine.drafters.swift import FEWEST_STEPS, STEPS, SwiftDrafts
from backends.engine.executors.torch import TorchExecutor
from backends.engine.model.architecture import EngineError
from backends.engine.sampling import GREEDY, TokenSampling
from backends.engine.streams import Stream
from backends.engine.sublayers.sets import NOTHING, Sublayers
from tests.support.engine.random_models import RandomModel, open_executor, random_model
from tests.unit.backends.engine.drafters.test_drafters import NUCLEUS, SLOTS, requests, run

LEFT_OUT = Sublayers(frozenset({1}), frozenset({0, 2}))


def torch_executor(model: RandomModel, slots: int) -> TorchExecutor:
    return TorchExecutor(model.weights, model.architecture, slots=slots, max_len=128)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sampling", [GREEDY, NUCLEUS], ids=str)
def test_the_text_is_plain_decodings_in_plain_torch(
    sampling: TokenSampling, dtype: torch.dtype
) -> None:
    model = random_model("one-key-head", dtype)
    vocabulary = model.architecture.vocabulary
    expected, _ = run(Decoder(torch_executor(model, 1)), requests(vocabulary, sampling))
    executor = torch_executor(model, SLOTS)
    fixed = SublayerDrafts(executor, LEFT_OUT, 4, 0.0)
    found, total = run(Decoder(executor, fixed), requests(vocabulary, sampling))
    assert found == expected
    assert total["drafted"] > total["accepted"] > 0
    executor = torch_executor(model, SLOTS)
    searched = SwiftDrafts(executor, 0.5, 4, 0.0)
    found, total = run(Decoder(executor, searched), requests(vocabulary, sampling))
    assert found == expected
    assert total["set_steps"] > 0


def test_with_nothing_left_out_every_draft_stands() -> None:
    model = random_model("llama", torch.bfloat16)
    executor = open_executor(model, (), SLOTS)
    _, total = run(
        Decoder(executor, SublayerDrafts(executor, NOTHING, 5, 0.0)), requests(97, NUCLEUS)
    )
    assert total["accepted"] == total["drafted"] > 0


def test_layers_that_drafting_runs_are_counted() -> None:
    """Six layers to verify; three and a half of them, or four sublayers less, for each draft."""
    model = random_model("llama")
    executor = open_executor(model, (), SLOTS)
    left_out = Sublayers(frozenset({1, 2, 3}), frozenset({4, 5}))
    _, total = run(
        Decoder(executor, SublayerDrafts(executor, left_out, 4, 0.0)), [Stream("a", (3, 4), 30)]
    )
    assert total["layers_run"] == 6 * total["steps"] + 3.5 * total["drafted"]
    unsure = SublayerDrafts(executor, left_out, 4, 1.1)
    _, total = run(Decoder(executor, unsure), [Stream("a", (3, 4), 30)])
    assert total["drafted"] == 0
    # the last token of an answer is not drafted for
    assert total["layers_run"] == 6 * total["steps"] + 3.5 * (total["steps"] - 1)


def test_a_set_of_another_model_is_refused() -> None:
    executor = open_executor(random_model("qwen3"), (), 1)
    with pytest.raises(EngineError, match="layer 4 is left out: expected 0 to 2"):
        SublayerDrafts(executor, Sublayers(mlp=frozenset({4})), 4, 0.0)


def useless_but(model: RandomModel, useful: set[int]) -> RandomModel:
    """Layers that add nothing, but for some."""
    layers = [
        layer if number in useful else replace(layer, out=layer.out * 0, down=layer.down * 0)
        for number, layer in enumerate(model.weights.layers)
    ]
    return RandomModel(model.architecture, replace(model.weights, layers=tuple(layers)))


@pytest.mark.parametrize("sampling", [GREEDY, NUCLEUS], ids=str)
def test_swift_finds_what_can_be_left_out_and_forgets_it(sampling: TokenSampling) -> None:
    model = useless_but(random_model("llama", agreement=2.0), {0, 1, 5})
    executor = open_executor(model, (), 2)
    drafter = SwiftDrafts(executor, 0.25, 4, 0.0, interval=3)
    first = drafter.left_out
    assert 1 in first.attention | first.mlp
    assert drafter.search_passes == (3 * 0.75 + 1) / 3
    streams = [Stream(f"r{n}", (3 + n, 4), 100, sampling=sampling) for n in range(16)]
    decoder = Decoder(executor, drafter)
    texts, total = run(decoder, streams)
    plain, _ = run(Decoder(open_executor(model, (), 1)), [replace(s) for s in fresh(streams)])
    assert texts == plain
    assert 1 not in drafter.left_out.attention | drafter.left_out.mlp
    assert FEWEST_STEPS <= total["set_steps"] < STEPS, "it ended when the set was good enough"
    named = [name for name in total if name.startswith("skipped_")]
    assert sum(total[name] for name in named) == 3 * len(streams), "a set for each answer"
    later = drafter.left_out
    assert drafter.search_passes == 0
    assert all(total[f"skipped_attention_{layer}"] > 0 for layer in later.attention)
    decoder.reset()
    assert drafter.left_out == first
    again, counts = run(decoder, fresh(streams))
    assert (again, counts, drafter.left_out) == (texts, total, later)


def fresh(streams: list[Stream]) -> list[Stream]:
    return [Stream(s.id, s.prompt, s.max_new_tokens, s.stops, s.sampling) for s in streams]


def test_a_search_that_finds_nothing_good_ends() -> None:
    model = random_model("llama", agreement=3.0)
    executor = open_executor(model, (), 3)
    streams = [Stream(f"r{n}", (3 + n, 4), 100) for n in range(30)]
    drafter = SwiftDrafts(executor, 0.6, 3, 0.0)
    _, total = run(Decoder(executor, drafter), streams)
    assert total["set_steps"] == STEPS


def test_nothing_is_searched_while_drafts_are_off() -> None:
    executor = open_executor(random_model("llama"), (), 3)
    drafter = SwiftDrafts(executor, 0.5, 0, 0.0)
    _, total = run(Decoder(executor, drafter), [Stream("a", (3, 4), 100)])
    assert total["drafted"] == total["set_steps"] == 0
