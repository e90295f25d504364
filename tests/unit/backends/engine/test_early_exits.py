"""Early exit by sequence: the text of a plain decoder of one sequence, whatever is in flight."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from backends.engine.decoder import Decoder
from backends.engine.early_exits import EarlyExits
from backends.engine.executors.base import RING
from backends.engine.executors.native import NativeExecutor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.sampling import GREEDY, TokenSampling
from backends.engine.segments.queues import BalancedQueues, Lockstep, SegmentChoice
from backends.engine.streams import Stream
from backends.kernels.cpu import native
from tests.support.engine.exit_decoder import ExitDecoder
from tests.support.engine.random_models import RandomModel, random_model

Kind = Callable[..., Any]
try:
    native.library()
    KINDS: list[Kind] = [TorchExecutor, NativeExecutor]
except native.NativeUnavailableError:
    KINDS = [TorchExecutor]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
batchings = pytest.mark.parametrize("batching", ["lockstep", "ready"])
LENGTHS = 5, 19, 1, 30, 12, 3, 26
MOST = 34
"""Tokens of an answer: more than a boundary holds positions, and past position 32."""
Leaving = Callable[[str, int, int, float], bool]
"""By stream, token of its answer, exit and confidence."""


class ToldRule:
    """A `LeavingRule` that is told who leaves."""

    def __init__(self, leaves: Leaving) -> None:
        self._leaves = leaves

    def passes(self, stream: Stream, index: int, confidence: float) -> bool:
        number = len(stream.tokens) - 1 - len(stream.prompt)
        return self._leaves(stream.id, number, index, confidence)

    def counts(self, layers: int, under_way: int) -> Mapping[str, float]:
        return {f"left_after_{layers}": 1}


def at_random(name: str, number: int, index: int, confidence: float) -> bool:
    """Runs of early tokens, longer than a boundary, with deep ones between."""
    draw = random.Random(f"{name} {number // 20} {number} {index}")
    shares = (0.97, 0.9, 0.9) if (number // 20 + len(name)) % 2 == 0 else (0.4, 0.5, 0.6)
    return draw.random() < shares[index % 3]


def when_sure(name: str, number: int, index: int, confidence: float) -> bool:
    return confidence > (0.3, 0.2, 0.15)[index % 3]


def never(name: str, number: int, index: int, confidence: float) -> bool:
    return False


def always(name: str, number: int, index: int, confidence: float) -> bool:
    return True


def segments(batching: str, count: int) -> SegmentChoice:
    return Lockstep() if batching == "lockstep" else BalancedQueues([1.0 + i for i in range(count)])


def opened(
    kind: Kind,
    model: RandomModel,
    exits: tuple[int, ...],
    leaves: Leaving,
    batching: str = "ready",
    slots: int = 4,
) -> Decoder:
    heads = [replace(head, margin=True) for head in model.heads(exits)]
    executor = kind(model.weights, model.architecture, heads, slots=slots, max_len=80)
    leaving = EarlyExits(executor, ToldRule(leaves), segments(batching, len(exits) + 1))
    return Decoder(executor, leaving=leaving)


def streams(
    model: RandomModel, stops: frozenset[int] = frozenset(), sampling: TokenSampling = GREEDY
) -> list[Stream]:
    draw = random.Random(4)
    vocabulary = model.architecture.vocabulary
    return [
        Stream(
            f"{'x' * (number % 2)}{number}",
            tuple(draw.randrange(vocabulary) for _ in range(length)),
            MOST - 3 * number,
            stops,
            replace(sampling, seed=number),
        )
        for number, length in enumerate(LENGTHS)
    ]


def run(decoder: Decoder, wanted: Sequence[Stream]) -> tuple[dict[str, list[int]], Counter[str]]:
    """Texts and counts; one stream more arrives every few steps."""
    texts: dict[str, list[int]] = {stream.id: [] for stream in wanted}
    counts: Counter[str] = Counter()
    waiting, step = list(wanted), 0
    while any(stream.finished is None for stream in wanted):
        if waiting and step % 3 == 0:
            decoder.add(waiting.pop(0))
        for output in decoder.step():
            texts[output.id] += output.tokens
            counts.update({name: int(count) for name, count in output.counts.items()})
        step += 1
        assert step < 10_000
    return texts, counts


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
@pytest.mark.parametrize("count", [14, 15, 16, 17, 18])
def test_a_boundary_is_paid_before_it_forgets(count: int, kind: Kind) -> None:
    """One sequence by itself, whose tokens leave so many times in a row, then go through: each fill
    finds the states that its positions left with."""
    model = random_model("llama")
    decoder = opened(kind, model, (2,), lambda name, number, *_: number % (count + 4) < count)
    executor: Any = decoder._executor
    fill, advance = executor.fill, executor.advance
    kept: dict[int, Any] = {}

    def states(rows: Any) -> list[tuple[int, Any]]:
        boundary = executor.boundary(1)
        return [(p, boundary[s, p % RING].clone()) for s, p, _ in rows.table.T.tolist()]

    def advanced(index: int, rows: Any, wanted: Any) -> Any:
        found = advance(index, rows, wanted)
        kept.update(states(rows) if index == 0 else ())
        return found

    def filled(index: int, rows: Any) -> None:
        assert all(torch.equal(kept.pop(position), state) for position, state in states(rows))
        fill(index, rows)

    executor.fill, executor.advance = filled, advanced
    run(decoder, streams(model)[1:2])
    assert len(kept) < MOST - 3


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


@kinds
def test_what_is_owed_is_filled_late_and_together(kind: Kind) -> None:
    """Whoever always leaves owes until the boundary is full, and all pay when one does."""
    model = random_model("llama")
    decoder = opened(kind, model, (1, 3), always, slots=7)
    calls = watched(decoder)
    run(decoder, streams(model))
    longest = max(stream.max_new_tokens for stream in streams(model))
    assert [index for index, _ in calls] == [1] * len(calls)
    assert 1 <= len(calls) <= 1 + longest // 15
    assert max(rows for _, rows in calls) > 16


@kinds
def test_nothing_is_filled_twice_or_left_out(kind: Kind) -> None:
    """Of each position every layer's keys and values are written once, by a pass or a fill."""
    model = random_model("llama")
    decoder = opened(kind, model, (1, 3), at_random)
    written: Counter[tuple[int, int]] = Counter()
    bounds = (0, 1, 3, model.architecture.layers)
    executor: Any = decoder._executor
    fill, advance = executor.fill, executor.advance

    def filled(index: int, rows: Any) -> None:
        for position in rows.positions.tolist():
            written.update((position, layer) for layer in range(bounds[index], bounds[-1]))
        fill(index, rows)

    def advanced(index: int, rows: Any, wanted: Any) -> Any:
        for position in rows.positions.tolist():
            written.update((position, layer) for layer in range(*bounds[index : index + 2]))
        return advance(index, rows, wanted)

    executor.fill, executor.advance = filled, advanced
    one = streams(model)[3]
    run(decoder, [one])
    assert set(written.values()) == {1}
    first, end = len(one.prompt), len(one.tokens) - 16
    wanted = {(position, layer) for position in range(first, end) for layer in range(bounds[-1])}
    assert wanted <= set(written)


def watched(decoder: Decoder) -> list[tuple[int, int]]:
    """Boundary and rows of each fill to come."""
    calls: list[tuple[int, int]] = []
    executor: Any = decoder._executor
    fill = executor.fill

    def noted(index: int, rows: Any) -> None:
        calls.append((index, len(rows)))
        fill(index, rows)

    executor.fill = noted
    return calls


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
