"""Trees of guesses: the text is plain decoding's whatever is offered, and counts say what stood."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from backends.engine import tree_verification
from backends.engine.decoder import Decoder
from backends.engine.drafters.trees.base import Guesses
from backends.engine.drafters.trees.lookahead import LookAhead
from backends.engine.executors.base import RING
from backends.engine.executors.torch import TorchExecutor
from backends.engine.sampling import GREEDY, TokenSampling
from backends.engine.streams import Stream
from tests.support.engine.random_models import SHAPES, open_executor, random_model
from tests.support.engine.told_executor import ToldExecutor
from tests.unit.backends.engine.drafters.test_drafters import NUCLEUS, requests, run


class ToldTrees:
    """Offers trees around answers known beforehand: right, wrong or random guesses, or mixed."""

    exits: tuple[int, ...] = ()

    def __init__(self, answers: Mapping[str, Sequence[int]], kind: str, vocabulary: int) -> None:
        self.answers, self.kind, self.vocabulary = answers, kind, vocabulary
        self.max_drafts = 6
        self.draw = random.Random(kind)
        self.heard: list[tuple[int, ...]] = []

    def grow(self, streams: Sequence[Stream]) -> Sequence[Guesses]:
        if self.kind == "now and then" and self.draw.random() < 0.5:
            return []
        return [self.tree(stream) for stream in streams]

    def tree(self, stream: Stream) -> Guesses:
        begun, room = len(stream.tokens) - len(stream.prompt), stream.room(self.max_drafts)
        right = tuple(self.answers[stream.id][begun : begun + max(0, room)])
        found = []
        for number in range(4):
            cut = self.draw.randint(0, len(right))
            if self.kind == "wrong":
                guess = tuple((token + 1 + number) % self.vocabulary for token in right)
            elif self.kind == "right" and number == 0:
                guess = right
            else:
                rest = (self.draw.randrange(self.vocabulary) for _ in right[cut:])
                guess = right[:cut] + tuple(rest)
            stop = next((i for i, t in enumerate(guess) if t in stream.stops), len(guess))
            found.append(guess[:stop])
        guesses = Guesses.of(stream.tokens[-1], found)
        guesses.asked = sorted(self.draw.sample(range(len(guesses.tokens)), 1))
        return guesses

    def told(self, stream: Stream, tokens: Sequence[int]) -> None:
        self.heard.append(tuple(tokens))

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        assert stream.drafts == 0
        return {}

    def reset(self) -> None:
        self.heard.clear()


@pytest.mark.parametrize("sampling", [GREEDY, NUCLEUS], ids=str)
@pytest.mark.parametrize("kind", ["right", "wrong", "mixed", "now and then"])
def test_any_tree_gives_plain_decodings_text(
    kind: str, sampling: TokenSampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_verification, "DRAWN", 5)  # a step's rows are drawn in several parts
    for name, dtype in (("llama", torch.bfloat16), ("one-key-head", torch.float32)):
        model = random_model(name, dtype)
        vocabulary = model.architecture.vocabulary
        expected, _ = run(Decoder(open_executor(model, (), 1)), requests(vocabulary, sampling))
        drafter = ToldTrees({n: ids for n, (ids, _) in expected.items()}, kind, vocabulary)
        decoder = Decoder(open_executor(model, (), 3), drafter)
        found, total = run(decoder, requests(vocabulary, sampling))
        assert found == expected
        assert drafter.heard
        assert total["step_tokens"] == total["accepted"] + total["steps"]
        assert total["layers_run"] == model.architecture.layers * total["steps"]
        if kind == "wrong":
            assert total["accepted"] == 0 < total["drafted"]
        if kind == "right":
            # beside the right chain three others are offered
            assert 0.2 < total["accepted"] / total["drafted"] < 0.8
            assert total["accepted_at_1"] == total["judged_at_1"] > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_look_ahead_on_the_reference_executor(name: str, dtype: torch.dtype) -> None:
    model = random_model(name, dtype)
    room: dict[str, Any] = {"slots": 2, "max_len": 80}

    def streams(sampling: TokenSampling) -> list[Stream]:
        return [
            Stream(f"r{n}", (3, 1 + n, 4) * (1 + 5 * n), 14, frozenset({n}), sampling)
            for n in range(3)
        ]

    for sampling in (GREEDY, NUCLEUS):
        plain = Decoder(TorchExecutor(model.weights, model.architecture, **room))
        expected, _ = run(plain, streams(sampling))
        executor = TorchExecutor(model.weights, model.architecture, **room)
        drafter = LookAhead(80, 3, 4, 3, pool_prompt=True)
        found, total = run(Decoder(executor, drafter), streams(sampling))
        assert found == expected
        assert total["drafted"] > 0


def test_common_beginnings_are_one() -> None:
    guesses = Guesses.of(9, [(1, 2, 3), (1, 2), (1, 4), (5,), (1, 2, 3), ()])
    assert guesses.tokens == [9, 1, 2, 3, 4, 5]
    assert guesses.back == [0, 1, 1, 1, 3, 5]
    assert guesses.judged == 6


def test_a_tree_counts_by_depth() -> None:
    """Two guesses for each of two tokens, one of them right, and none for a third."""
    model = random_model("llama")
    drafter = ToldTrees({}, "right", 97)
    executor = open_executor(model, (), 1)
    (text,) = run(Decoder(executor), [Stream("a", (5, 6), 8)])[0].values()
    first, second = text[0][1:3]

    def tree(stream: Stream) -> Guesses:
        last = stream.tokens[-1]
        if len(stream.tokens) > 3:
            return Guesses.of(last, [])
        wrong = [(token + 1) % 97 for token in (first, second)]
        return Guesses.of(last, [(first, wrong[1]), (first, second), (wrong[0],)])

    drafter.tree = tree  # type: ignore[method-assign]
    found, total = run(Decoder(executor, drafter), [Stream("a", (5, 6), 8)])
    assert found["a"] == text
    assert {name: n for name, n in total.items() if "_at_" in name} == {
        "judged_at_1": 1, "accepted_at_1": 1, "judged_at_2": 1, "accepted_at_2": 1,
    }  # fmt: skip
    assert (total["drafted"], total["accepted"], total["steps"]) == (4, 2, 5)


def test_what_cannot_verify_trees_is_refused() -> None:
    drafter = LookAhead(64, 3, 4, 3)
    told: Any = ToldExecutor([0] * 64, [], exits=())
    told.trees = None
    with pytest.raises(ValueError, match="a drafter of trees for told, which runs none"):
        Decoder(told, drafter)
    executor = open_executor(random_model("llama"), (), 1)
    with pytest.raises(ValueError, match="expected verification by the model"):
        Decoder(executor, drafter, verify=False)
    drafter.max_drafts = RING
    with pytest.raises(ValueError, match="max_drafts 16: expected 0 to 15"):
        Decoder(executor, drafter)
