"""Every drafter gives plain decoding's text, in any company, and drafts what it should."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import torch

from backends.engine.costs.draft_costs import LookupCosts
from backends.engine.costs.row_costs import RowCosts
from backends.engine.costs.steps import whole_steps
from backends.engine.decoder import Decoder
from backends.engine.drafters.base import Drafter
from backends.engine.drafters.counts import draft_counts
from backends.engine.drafters.draft_model import DraftModel
from backends.engine.drafters.first_layers import FirstLayers
from backends.engine.drafters.lookup import PromptLookup
from backends.engine.drafters.sublayers import SublayerDrafts
from backends.engine.drafters.swift import SwiftDrafts
from backends.engine.drafters.trees.lookahead import LookAhead
from backends.engine.executors.base import StepRows
from backends.engine.sampling import GREEDY, TokenSampling
from backends.engine.streams import Output, Stream
from backends.engine.sublayers.sets import Sublayers
from tests.support.engine.random_models import (
    MORE_SHAPES,
    SHAPES,
    RandomModel,
    open_executor,
    random_model,
)

SLOTS = 3
NUCLEUS = TokenSampling(0.7, 0.9, seed=5)
Made = Callable[[RandomModel, int], Decoder]


def same_model(model: RandomModel, drafts: int) -> Decoder:
    drafter = DraftModel(open_executor(model, (), SLOTS), drafts, 0.0)
    return Decoder(open_executor(model, (), SLOTS), drafter)


def other_model(model: RandomModel, drafts: int, threshold: float = 0.0) -> Decoder:
    """A model of other sizes: most of its drafts fall."""
    dtype, vocabulary = model.weights.embedding.dtype, model.architecture.vocabulary
    other = random_model("one-key-head", dtype, seed=3, vocabulary=vocabulary)
    drafter = DraftModel(open_executor(other, (), SLOTS), drafts, threshold)
    return Decoder(open_executor(model, (), SLOTS), drafter)


def lookup(model: RandomModel, drafts: int) -> Decoder:
    return Decoder(open_executor(model, (), SLOTS), PromptLookup(SLOTS, drafts, 1, 3))


def first_layers(model: RandomModel, drafts: int) -> Decoder:
    executor = open_executor(model, (1,), SLOTS)
    return Decoder(executor, FirstLayers(executor, drafts))


def fewer_sublayers(model: RandomModel, drafts: int) -> Decoder:
    executor = open_executor(model, (), SLOTS)
    left_out = Sublayers(frozenset({1}), frozenset({0, 2}))
    return Decoder(executor, SublayerDrafts(executor, left_out, drafts, 0.0))


def searched_sublayers(model: RandomModel, drafts: int) -> Decoder:
    executor = open_executor(model, (), SLOTS)
    return Decoder(executor, SwiftDrafts(executor, 0.5, drafts, 0.0, interval=3))


def look_ahead(model: RandomModel, drafts: int) -> Decoder:
    executor = open_executor(model, (), SLOTS)
    drafter = LookAhead(executor.max_len, 4, drafts + 1, 3, pool_prompt=drafts == 4)
    return Decoder(executor, drafter)


MADE: dict[str, Made] = {
    "draft=target": same_model,
    "other": other_model,
    "lookup": lookup,
    "layerskip": first_layers,
    "sublayers": fewer_sublayers,
    "swift": searched_sublayers,
    "lookahead": look_ahead,
}


def requests(vocabulary: int, sampling: TokenSampling) -> list[Stream]:
    """Prompts that repeat themselves, some of them long, with stop tokens."""
    draw = random.Random(1)
    made = []
    for number in range(7):
        piece = [draw.randrange(vocabulary) for _ in range(1 + number * 4)]
        stops = frozenset(range(number % 3 * 4))
        prompt = tuple(piece * (1 + number % 3))
        made.append(Stream(f"r{number}", prompt, (1, 2, 30, 41)[number % 4], stops, sampling))
    return made


def run(decoder: Decoder, streams: Sequence[Stream]) -> tuple[dict[str, Any], Counter[str]]:
    """Texts by request and all counts; a request arrives every second step."""
    found: dict[str, list[Output]] = {stream.id: [] for stream in streams}
    waiting, steps = list(streams), 0
    while True:
        if waiting and steps % 2 == 0:
            decoder.add(waiting.pop(0))
        outputs, steps = decoder.step(), steps + 1
        for output in outputs:
            found[output.id].append(output)
        if not outputs and not waiting:
            break
    total: Counter[str] = Counter()
    for output in (one for many in found.values() for one in many):
        total.update(output.counts)
    texts = {
        name: ([t for output in many for t in output.tokens], many[-1].finished)
        for name, many in found.items()
    }
    return texts, total


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sampling", [GREEDY, NUCLEUS], ids=str)
@pytest.mark.parametrize("name", [*SHAPES, *MORE_SHAPES])
def test_the_text_is_plain_decodings(
    name: str, sampling: TokenSampling, dtype: torch.dtype
) -> None:
    model = random_model(name, dtype)
    vocabulary = model.architecture.vocabulary
    expected, _ = run(Decoder(open_executor(model, (), 1)), requests(vocabulary, sampling))
    for kind, make in MADE.items():
        for drafts in (1, 4, 15):
            found, total = run(make(model, drafts), requests(vocabulary, sampling))
            assert found == expected, (kind, drafts)
            assert total["drafted"] > 0, kind
            assert bool(total["set_steps"]) == (kind == "swift")
            if kind == "draft=target":
                assert total["accepted"] == total["drafted"]
                assert total["judged_at_1"] == total["accepted_at_1"]


@pytest.mark.parametrize("kind", [kind for kind in MADE if kind != "lookahead"])
def test_drafters_are_as_they_were_after_whole_steps_were_timed(kind: str) -> None:
    """Texts, and all that is counted of them: nothing is left in caches, slots and searches."""
    decoder = MADE[kind](random_model("llama"), 4)
    executor, drafter = decoder._executor, cast(Drafter, decoder._drafter)
    expected = run(decoder, requests(97, GREEDY))
    decoder.reset()
    parts = LookupCosts(RowCosts((1, 2), (100.0, 100.0), 100, 0.0))
    assert whole_steps(parts, executor, drafter) is not parts
    assert drafter.max_drafts == 4
    assert run(decoder, requests(97, GREEDY)) == expected


def test_a_draft_model_that_is_not_sure_stops() -> None:
    model = random_model("llama")
    drafted = []
    for threshold in (0.0, 0.1, 0.3, 1.1):
        decoder = other_model(model, 8, threshold)
        _, total = run(decoder, requests(97, GREEDY))
        drafted.append(total["drafted"])
    assert drafted == sorted(drafted, reverse=True)
    assert drafted[0] > drafted[2]
    assert drafted[3] == 0


def test_a_draft_model_catches_up_with_what_others_decided() -> None:
    """More of it than a boundary holds, in prompt and answer, at once with streams that are not
    behind."""
    model = random_model("llama", torch.bfloat16)
    executor = open_executor(model, (), SLOTS)
    drafter = DraftModel(executor, 3, 0.0)
    plain = Decoder(open_executor(model, (), SLOTS))
    (text,) = run(plain, [Stream("a", (4, 5, 6), 60)])[0].values()
    stream = Stream("a", (4, 5, 6), 60, tokens=[4, 5, 6, *text[0][:40]], done=[42], slot=1)
    drafter.draft([stream])
    assert stream.tokens == [4, 5, 6, *text[0][:43]]
    stream.tokens[-1:] = [7]  # the last draft fell
    stream.done = [len(stream.tokens) - 1]
    assert drafter.verified(stream, 2) == {}
    fresh = DraftModel(open_executor(model, (), SLOTS), 3, 0.0)
    copy = Stream("b", stream.prompt, 60, tokens=list(stream.tokens), done=[45], slot=2)
    drafter.draft([stream])
    fresh.draft([copy])
    assert stream.tokens == copy.tokens, "the cache is as if that draft had never been"


def test_a_lookup_finds_the_longest_and_the_last() -> None:
    def drafts(tokens: list[int], shortest: int = 1, stops: tuple[int, ...] = ()) -> list[int]:
        stream = Stream("a", tuple(tokens), 20, frozenset(stops), tokens=list(tokens), slot=0)
        stream.done = [len(tokens) - 1]
        PromptLookup(1, 3, shortest, 3).draft([stream])
        return stream.tokens[len(tokens) :]

    assert drafts([1, 2, 3, 4, 9, 2, 3, 5, 6, 7, 8, 2, 3]) == [5, 6, 7], "the last of two"
    assert drafts([1, 2, 3, 4, 9, 8, 3, 5, 1, 2, 3]) == [4, 9, 8], "the longer match goes first"
    assert drafts([1, 2, 3, 4]) == []
    assert drafts([1, 2, 1, 3, 2], shortest=2) == []
    assert drafts([7, 7]) == [7, 7, 7], "on into the drafts themselves"
    assert drafts([5, 1, 2, 1, 2]) == [1, 2, 1]
    assert drafts([5, 1, 2, 1, 2], stops=(2,)) == [1], "a stop token is not drafted there either"
    assert drafts([1, 2, 3, 4, 5, 1, 2], stops=(4,)) == [3], "a stop token is not drafted"
    assert drafts([5]) == []
    wide = [0, 10, 13, 0xD800, 0xDFFF, 256_000, 0]
    assert drafts([*wide, 9, *wide]) == [9, 0, 10], "whatever characters the ids are"


def test_a_lookup_sees_only_what_was_verified_and_forgets_what_is_over() -> None:
    stream = Stream("a", (1, 2, 3, 1), 20, tokens=[1, 2, 3, 1], done=[3], slot=0)
    lookup = PromptLookup(1, 3, 1, 2)
    lookup.draft([stream])
    assert stream.tokens == [1, 2, 3, 1, 2, 3, 1]
    stream.tokens[4:] = [9]
    stream.done = [4]
    lookup.verified(stream, 0)
    stream.tokens += [1]
    stream.done = [5]
    lookup.draft([stream])
    assert stream.tokens[6:] == [9, 1, 9], "what followed the last 1 that is there now"
    stream.finished = "stop"
    lookup.verified(stream, 0)
    new = [8, 9, 7, 6, 5, 4, 3, 1]
    other = Stream("b", tuple(new), 20, tokens=list(new), done=[7], slot=0)
    lookup.draft([other])
    assert other.tokens == new


def test_a_drafter_that_is_off_does_nothing() -> None:
    class SlotsAlone:
        """Fails when it is asked for anything but its size."""

        slots = 1

    streams = [Stream("a", (1, 2, 1), 20, tokens=[1, 2, 1], done=[2], slot=0)]
    for drafter in (PromptLookup(1, 0, 1, 3), DraftModel(SlotsAlone(), 0, 0.6)):  # type: ignore[arg-type]
        assert drafter.draft(streams) is streams
        assert streams[0].tokens == [1, 2, 1]


def test_drafts_of_a_batch_that_samples_in_part_are_the_models_own() -> None:
    """Greedy and sampled streams draft side by side, each as the model that verifies selects."""
    model = random_model("llama", torch.bfloat16)
    ways = [GREEDY, NUCLEUS, TokenSampling(1.3, seed=8), TokenSampling(1e-308)]
    streams = [Stream(f"r{n}", (3 + n, 9), 40, sampling=how) for n, how in enumerate(ways)]
    expected, _ = run(Decoder(open_executor(model, (), 1)), streams)
    again = [Stream(s.id, s.prompt, 40, sampling=s.sampling) for s in streams]
    found, total = run(same_model(model, 6), again)
    assert found == expected
    assert total["accepted"] == total["drafted"] > 100


def test_first_layers_draft_until_all_streams_can_be_verified_at_once() -> None:
    """Streams that came at other times, of other lengths and with stop tokens: the other layers run
    for all of them or not at all."""
    model, verified = random_model("llama", torch.bfloat16), list[int]()
    executor = open_executor(model, (1,), SLOTS)

    class Watched(FirstLayers):
        def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
            found = super().draft(streams)
            verified.append(len(found))
            assert found == streams
            through = {stream.done[0] == len(stream.tokens) for stream in streams}
            assert len(through) == 1, "every token of all of them, or nothing of any"
            return found

    _, total = run(Decoder(executor, Watched(executor, 4)), requests(97, GREEDY))
    assert total["steps"] == sum(verified)
    assert max(verified) == SLOTS
    assert total["drafted"] > 100
    last = Stream("a", (1, 2), 5, tokens=[1, 2, 3, 4, 5, 6], done=[5, 5], slot=0)
    assert FirstLayers(executor, 4).draft([last]) == [last]
    assert last.done == [5, 5], "no room: nothing is begun, so that all layers run in one call"


def test_counts_of_a_verification() -> None:
    assert draft_counts(0, 0, ended=False) == {"drafted": 0, "accepted": 0}
    assert draft_counts(3, 1, ended=False) == {
        "drafted": 3, "accepted": 1, "judged_at_1": 1, "accepted_at_1": 1,
        "judged_at_2": 1, "accepted_at_2": 0,
    }  # fmt: skip
    assert "judged_at_2" not in draft_counts(3, 1, ended=True), "nobody asked the model there"
    assert draft_counts(2, 2, ended=False) == draft_counts(2, 2, ended=True)


def test_what_a_drafter_of_one_slot_was_told_does_not_reach_another() -> None:
    """A slot's next stream begins without the former one's cache or n-grams."""
    model = random_model("llama")
    executor = open_executor(model, (), 1)
    executor.read(StepRows.span(0, 0, [9] * 50))
    drafter = DraftModel(executor, 4, 0.0)
    decoder = Decoder(open_executor(model, (), 1), drafter)
    one, _ = run(decoder, [Stream("a", (3, 4), 30)])
    again, total = run(decoder, [Stream("a", (3, 4), 30)])
    assert one == again
    assert total["accepted"] == total["drafted"]
