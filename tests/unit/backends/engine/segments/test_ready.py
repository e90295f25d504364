"""Queues before segments change neither a text nor what is decided, whatever the fills."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.engine.decoder import Decoder
from backends.engine.drafters.exits import ExitDrafter, PredictionPolicy
from backends.engine.drafters.trees.base import Guesses
from backends.engine.executors.base import Executor
from backends.engine.executors.torch import TorchExecutor
from backends.engine.sampling import TokenSampling
from backends.engine.segments.policy import FillPolicy
from backends.engine.segments.ready import ReadyDrafter
from backends.engine.streams import Output, Stream
from tests.support.engine.random_models import RandomModel, open_executor, random_model

GREEDY = TokenSampling()
SAMPLED = TokenSampling(0.8, 0.9, seed=11)
EXITS = (1, 3, 4)
SLOTS = 7


class DrawnConfidence:
    """Confidences that depend on the stream, its position, the attempt and the exit alone."""

    def __init__(self) -> None:
        self.asked: dict[str, list[tuple[int, int]]] = {}
        self.settled: dict[str, list[tuple[int, int, int]]] = {}

    def confidence(self, stream: Stream, index: int, token: int, confidence: float) -> float:
        asked = self.asked.setdefault(stream.id, [])
        asked.append((len(stream.tokens), index))
        key = f"{stream.id} {asked.count(asked[-1])} {asked[-1]}"
        return hashlib.sha256(key.encode()).digest()[0] / 256

    def selected(self, stream: Stream, start: int, chosen: Sequence[int]) -> Sequence[int]:
        return chosen

    def walked(
        self, stream: Stream, guesses: Guesses, takes: Mapping[int, int]
    ) -> Mapping[int, int]:
        return takes

    def verified(
        self, stream: Stream, start: int, chosen: Sequence[int], accepted: int, under_way: int
    ) -> None:
        drafted = len(stream.tokens) - 1 - start
        self.settled.setdefault(stream.id, []).append((start, drafted, accepted))


def streams(model: RandomModel, count: int, sampling: TokenSampling = GREEDY) -> list[Stream]:
    draw = torch.Generator().manual_seed(3)
    made = []
    for number in range(count):
        length = 1 + 5 * number % 17
        ids = torch.randint(0, model.architecture.vocabulary, (length,), generator=draw).tolist()
        stops, most = frozenset(range(number % 3 * 3)), (1, 2, 37, 20, 29)[number % 5]
        made.append(Stream(f"r{number}", tuple(ids), most, stops, sampling))
    return made


def run(decoder: Decoder, requests: Sequence[Stream], late: int = 0) -> dict[str, list[Output]]:
    """The last `late` requests arrive one by one, a step apart."""
    arriving = list(requests)
    for stream in arriving[: len(arriving) - late]:
        decoder.add(stream)
    arriving = arriving[len(arriving) - late :]
    found: dict[str, list[Output]] = {}
    while (outputs := decoder.step()) or arriving:
        if arriving:
            decoder.add(arriving.pop(0))
        for output in outputs:
            found.setdefault(output.id, []).append(output)
    return found


def texts(found: dict[str, list[Output]]) -> dict[str, tuple[list[int], str | None]]:
    return {
        name: ([t for o in outputs for t in o.tokens], outputs[-1].finished)
        for name, outputs in found.items()
    }


def totals(found: dict[str, list[Output]]) -> dict[str, Counter[str]]:
    summed: dict[str, Counter[str]] = {}
    for name, outputs in found.items():
        summed[name] = Counter()
        for output in outputs:
            summed[name].update(output.counts)
    return summed


def executor_of(kind: str, model: RandomModel, exits: tuple[int, ...]) -> Executor:
    if kind == "kernels":
        return open_executor(model, exits, SLOTS)
    heads = model.heads(exits)
    return TorchExecutor(model.weights, model.architecture, heads, slots=SLOTS, max_len=128)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", ["kernels", "torch"])
def test_the_text_is_plain_decodings_and_the_decisions_lockstep_s(
    kind: str, sampling: TokenSampling
) -> None:
    model = random_model("llama", torch.bfloat16)
    expected = texts(run(Decoder(executor_of(kind, model, ())), streams(model, 12, sampling)))
    executor = executor_of(kind, model, EXITS)
    seen: Counter[str] = Counter()
    for most in range(1, 16) if kind == "kernels" else (2, 5, 15):
        policy = PredictionPolicy((0.4, 0.5, 0.6), most)
        fills = FillPolicy({1: (1, 1, 1, 1), 4: (1, 1 + most % 3, 2, 1 + most % 4)})
        hooks = DrawnConfidence(), DrawnConfidence()
        lockstep = Decoder(executor, ExitDrafter(executor, policy, hooks[0]), decisions=hooks[0])
        before = run(lockstep, streams(model, 12, sampling), late=4)
        drafter = ReadyDrafter(executor, policy, fills, hooks[1])
        after = run(
            Decoder(executor, drafter, decisions=hooks[1]), streams(model, 12, sampling), late=4
        )
        assert texts(before) == texts(after) == expected
        assert hooks[0].asked == hooks[1].asked
        assert hooks[0].settled == hooks[1].settled
        assert totals(before) == totals(after)
        for counts in totals(after).values():
            seen.update(counts)
    assert 0 < seen["accepted"] < seen["drafted"]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_fills_and_limit_are_lossless(data: st.DataObject) -> None:
    model = random_model("llama", torch.bfloat16, agreement=data.draw(st.sampled_from((0.1, 1.0))))
    exits = tuple(sorted(data.draw(st.sets(st.integers(1, 5), min_size=1))))
    fill = st.tuples(*(st.integers(1, 9) for _ in (*exits, None)))
    fills = data.draw(st.dictionaries(st.integers(1, SLOTS), fill, min_size=1))
    limit = data.draw(st.one_of(st.none(), st.integers(0, SLOTS)))
    gammas = tuple(data.draw(st.floats(0, 1)) for _ in exits)
    policy = PredictionPolicy(gammas, data.draw(st.integers(0, 15)), limit)
    sampling = TokenSampling(data.draw(st.sampled_from((0.0, 0.7))), seed=2)
    hook = data.draw(st.sampled_from((None, DrawnConfidence())))
    expected = texts(run(Decoder(open_executor(model, (), SLOTS)), streams(model, 9, sampling)))
    executor = open_executor(model, exits, SLOTS)
    drafter = ReadyDrafter(executor, policy, FillPolicy(fills), hook)
    late = data.draw(st.integers(0, 8))
    found = run(Decoder(executor, drafter, decisions=hook), streams(model, 9, sampling), late)
    assert texts(found) == expected


def test_a_pass_takes_all_that_wait_and_the_last_one_waits_for_its_fill() -> None:
    model = random_model("llama")
    executor = open_executor(model, (2,), 4)
    passes: list[tuple[int, int]] = []

    class LeavesOnce(DrawnConfidence):
        """The first two streams leave once, the others never."""

        def confidence(self, stream: Stream, index: int, token: int, confidence: float) -> float:
            first = stream.id in ("r0", "r1") and stream.drafts == 0
            return 1.0 if first else 0.0

    advance = executor.advance

    def counted(index: int, rows: object, wanted: object) -> object:
        passes.append((index, len(rows)))  # type: ignore[arg-type]
        return advance(index, rows, wanted)  # type: ignore[arg-type]

    executor.advance = counted  # type: ignore[method-assign,assignment]
    fills = FillPolicy({1: (1, 4)})
    drafter = ReadyDrafter(executor, PredictionPolicy((0.5,), 5), fills, LeavesOnce())
    decoder = Decoder(executor, drafter, decisions=LeavesOnce())
    for number in range(4):
        decoder.add(Stream(f"r{number}", (3, number), 12))
    decoder.step()
    passes.clear()
    outputs = decoder.step()
    assert {output.id for output in outputs} == {"r0", "r1", "r2", "r3"}
    # r0 and r1 have a draft each, whose row the last segment has not seen either
    assert passes == [(0, 4), (0, 2), (1, 6)]


Found = dict[str, list[Output]]


def waiting_inside(limit: int | None) -> tuple[Decoder, DrawnConfidence, list[Stream], Found]:
    """A decoder of three streams, one of which at least waits between segments, with two requests
    more that it has not seen, and what it has put out."""
    executor = open_executor(random_model("llama"), EXITS, SLOTS)
    hook = DrawnConfidence()
    policy = PredictionPolicy((0.4, 0.5, 0.6), 9, limit)
    drafter = ReadyDrafter(executor, policy, FillPolicy({1: (1, 9, 9, 1)}), hook)
    decoder = Decoder(executor, drafter, decisions=hook)
    requests = [Stream(f"r{n}", (9, n), 40) for n in range(5)]
    for request in requests[:3]:
        decoder.add(request)
    found: Found = {}
    for _ in range(30):
        for output in decoder.step():
            found.setdefault(output.id, []).append(output)
        if any(r.done and len(r.tokens) == r.done[0] > r.done[-1] for r in requests):
            return decoder, hook, requests, found
    raise AssertionError("no stream ever waited between two segments")


def test_beyond_the_limit_what_is_inside_comes_to_its_end_and_nothing_is_asked() -> None:
    decoder, hook, requests, found = waiting_inside(limit=3)
    asked = {name: len(tries) for name, tries in hook.asked.items()}
    assert sum(asked.values()) > 0
    for request in requests[3:]:
        decoder.add(request)
    for _ in range(6):
        for output in decoder.step():
            found.setdefault(output.id, []).append(output)
    assert all(request.drafts == 0 for request in requests)
    assert {name: len(tries) for name, tries in hook.asked.items()} == asked
    assert_layers(found)


def assert_layers(found: Found) -> None:
    """Each draft runs the layers up to its exit, each verification all of them."""
    for total in totals(found).values():
        early = sum(layer * total[f"exits_layer_{layer}"] for layer in EXITS)
        assert total["layers_run"] == early + 6 * total["steps"]


def test_layers_are_counted_once_whoever_waits_where() -> None:
    model = random_model("llama")
    for limit in (None, 3, 0):
        executor = open_executor(model, EXITS, SLOTS)
        hook = DrawnConfidence()
        policy = PredictionPolicy((0.4, 0.5, 0.6), 6, limit)
        drafter = ReadyDrafter(executor, policy, FillPolicy({1: (1, 2, 1, 2)}), hook)
        found = run(Decoder(executor, drafter, decisions=hook), streams(model, 12), late=9)
        assert_layers(found)


def test_every_stream_goes_on_while_others_leave_early_again_and_again() -> None:
    """One stream never leaves early and waits for company that the others seldom are."""
    model = random_model("llama")
    executor = open_executor(model, EXITS, SLOTS)

    class OneNeverLeaves(DrawnConfidence):
        def confidence(self, stream: Stream, index: int, token: int, confidence: float) -> float:
            return 0.0 if stream.id == "slow" else 1.0

    hook = OneNeverLeaves()
    fills = FillPolicy({1: (1, 7, 7, 7)})
    drafter = ReadyDrafter(executor, PredictionPolicy((0.5,) * 3, 15), fills, hook)
    decoder = Decoder(executor, drafter, decisions=hook)
    decoder.add(Stream("slow", (1, 2), 20))
    for number in range(6):
        decoder.add(Stream(f"r{number}", (3, number), 100))
    waits = []
    since = 0
    for outputs in itertools.takewhile(bool, iter(decoder.step, [])):
        since += 1
        if any(output.id == "slow" for output in outputs):
            waits.append(since)
            since = 0
    assert len(waits) == 20
    assert max(waits) <= 2 * SLOTS


def test_reset_forgets_where_streams_waited() -> None:
    decoder, _, _, _ = waiting_inside(limit=None)
    decoder.reset()
    assert decoder.step() == []
    model = random_model("llama")
    expected = texts(run(Decoder(open_executor(model, (), SLOTS)), streams(model, 12)))
    assert texts(run(decoder, streams(model, 12))) == expected


def test_unverified_drafts_stand_as_in_lockstep() -> None:
    model = random_model("llama", agreement=1.0)
    executor = open_executor(model, EXITS, SLOTS)
    policy = PredictionPolicy((0.5,) * 3, 4)
    hooks = DrawnConfidence(), DrawnConfidence()
    fills = FillPolicy({1: (1, 2, 3, 4)})
    drafters = (
        ExitDrafter(executor, policy, hooks[0]),
        ReadyDrafter(executor, policy, fills, hooks[1]),
    )
    found = [
        texts(run(Decoder(executor, d, verify=False, decisions=h), streams(model, 12)))
        for d, h in zip(drafters, hooks, strict=True)
    ]
    assert found[0] == found[1]
    assert found[0] != texts(run(Decoder(open_executor(model, (), SLOTS)), streams(model, 12)))
