"""Early exit by sequence: the text of a plain decoder of one sequence, whatever is in flight."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest

from backends.engine.decoder import Decoder
from backends.engine.executors.torch import TorchExecutor
from backends.engine.sampling import TokenSampling
from backends.engine.streams import Stream
from tests.support.engine.exit_decoder import ExitDecoder
from tests.support.engine.exit_streams import (
    Kind,
    Leaving,
    at_random,
    batchings,
    kinds,
    never,
    opened,
    run,
    streams,
    when_sure,
)
from tests.support.engine.random_models import RandomModel, random_model


def expected(
    model: RandomModel, exits: tuple[int, ...], leaves: Leaving, wanted: Sequence[Stream]
) -> tuple[dict[str, list[int]], int]:
    """Texts of the plain decoder, and the layers that its tokens ran."""
    texts, layers = {}, 0
    for stream in wanted:
        name = stream.id
        plain = ExitDecoder(model, exits, lambda *told, name=name: leaves(name, *told))
        sampling = stream.sampling if stream.sampling.temperature else None
        texts[name] = plain.answer(stream.prompt, stream.max_new_tokens, stream.stops, sampling)
        layers += sum(plain.depths)
        assert sampling is not None or plain.nearest > 1e-4, "too near for a comparison"
    return texts, layers


@kinds
@batchings
@pytest.mark.parametrize("leaves", [at_random, when_sure], ids=lambda leaves: str(leaves.__name__))
@pytest.mark.parametrize(
    ("name", "exits"), [("llama", (2,)), ("qwen3", (1, 2)), ("qwen2", (1, 3, 4))], ids=str
)
def test_the_text_is_that_of_a_plain_decoder(
    name: str, exits: tuple[int, ...], leaves: Leaving, batching: str, kind: Kind
) -> None:
    model = random_model(name)
    texts, layers = expected(model, exits, leaves, streams(model))
    found, counts = run(opened(kind, model, exits, leaves, batching), streams(model))
    assert found == texts
    assert counts["layers_run"] == layers
    told = {int(n.removeprefix("left_after_")): c for n, c in counts.items() if "left" in n}
    assert sum(depth * count for depth, count in told.items()) == layers
    assert sum(told.values()) == counts["steps"] == sum(map(len, texts.values())) - len(texts)
    assert len(told) == len(exits) + 1, "nobody left somewhere: the case shows little"


@kinds
@batchings
def test_stop_tokens_end_an_answer_wherever_they_come_from(batching: str, kind: Kind) -> None:
    model = random_model("llama")
    texts, _ = expected(model, (1, 3), at_random, streams(model))
    seldom = Counter(itertools.chain(*texts.values())).most_common()[-40:]
    stops = frozenset(token for token, _ in seldom[::13])
    texts, _ = expected(model, (1, 3), at_random, streams(model, stops))
    wanted = streams(model, stops)
    found, _ = run(opened(kind, model, (1, 3), at_random, batching), wanted)
    assert found == texts
    assert {stream.finished for stream in wanted} == {"stop", "length"}


@kinds
@batchings
def test_sampled_tokens_are_drawn_from_the_exits_own_logits(batching: str, kind: Kind) -> None:
    """Some streams sample, some do not."""
    model = random_model("llama")
    sampling = TokenSampling(0.9, 0.95, 1)

    def mixed() -> list[Stream]:
        drawn, greedy = streams(model, sampling=sampling), streams(model)
        return [pair[number % 2] for number, pair in enumerate(zip(drawn, greedy, strict=True))]

    texts, _ = expected(model, (1, 3), at_random, mixed())
    assert texts != expected(model, (1, 3), at_random, streams(model))[0]
    found, _ = run(opened(kind, model, (1, 3), at_random, batching), mixed())
    assert found == texts


@kinds
@batchings
def test_who_never_leaves_decodes_plainly(batching: str, kind: Kind) -> None:
    model = random_model("llama")
    executor = kind(model.weights, model.architecture, slots=4, max_len=80)
    plain, counted = run(Decoder(executor), streams(model))
    found, counts = run(opened(kind, model, (1, 3), never, batching), streams(model))
    assert found == plain
    assert counts["layers_run"] == counted["layers_run"] == counts["layers_total"]


def test_in_lockstep_nobody_is_a_token_ahead_and_else_somebody_is() -> None:
    model = random_model("llama")
    ahead = {}
    for batching in ("lockstep", "ready"):
        decoder = opened(TorchExecutor, model, (1, 3), at_random, batching)
        some = streams(model)[:4]
        for stream in some:
            decoder.add(stream)
        apart = 0
        while not any(stream.finished for stream in some):
            decoder.step()
            lengths = [len(stream.tokens) - len(stream.prompt) for stream in some if stream.tokens]
            apart = max(apart, max(lengths) - min(lengths))
        ahead[batching] = apart
    assert ahead["lockstep"] == 1
    assert ahead["ready"] > 1


@kinds
def test_after_a_reset_everything_begins_anew(kind: Kind) -> None:
    model = random_model("llama")
    decoder = opened(kind, model, (1, 3), at_random)
    texts, _ = run(decoder, streams(model))
    for stream in streams(model):
        decoder.add(stream)
    for _ in range(25):
        decoder.step()
    decoder.reset()
    assert run(decoder, streams(model))[0] == texts


def test_exits_must_be_those_of_the_executor() -> None:
    model = random_model("llama")
    with pytest.raises(ValueError, match=r"exits \(\) for an executor with \(1,\)"):
        Decoder(TorchExecutor(
            model.weights, model.architecture, model.heads((1,)), slots=1, max_len=8
        ))  # fmt: skip
