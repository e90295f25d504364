"""Which passes run together with queues before segments, and when all segments run in one."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from backends.engine.decoder import Decoder
from backends.engine.drafters.exits import ExitDrafter, PredictionPolicy
from backends.engine.executors.base import Executor, Int32, StepRows
from backends.engine.segments.policy import FillPolicy
from backends.engine.segments.ready import ReadyDrafter
from backends.engine.streams import Output, Stream
from tests.support.engine.random_models import RandomModel, open_executor, random_model
from tests.unit.backends.engine.test_decoder import run, streams, texts

ALL_AT_ONCE = 99


def ready_decoder(
    model: RandomModel,
    exits: tuple[int, ...],
    policy: PredictionPolicy,
    fills: Sequence[int],
    slots: int = 4,
    kernels: str = "auto",
) -> Decoder:
    executor = open_executor(model, exits, slots, kernels)
    waits = FillPolicy({1: tuple(fills)})
    return Decoder(executor, ReadyDrafter(executor, policy, waits))


def counted(found: dict[str, list[Output]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for output in itertools.chain.from_iterable(found.values()):
        total.update(output.counts)
    return total


def test_one_stream_is_decoded_as_in_lockstep() -> None:
    model, policy = random_model("llama"), PredictionPolicy((0.2, 0.4), 3)
    found = run(ready_decoder(model, (2, 4), policy, (1, 1, 1)), streams(model, 1))
    executor = open_executor(model, (2, 4), 4)
    expected = run(Decoder(executor, ExitDrafter(executor, policy)), streams(model, 1))
    assert found == expected


class WatchedPasses:
    """Notes the streams of each pass of an executor."""

    def __init__(self, executor: Executor) -> None:
        self.passes: list[tuple[str, int, int]] = []
        """What ran, its segment, and of how many streams."""
        advance, whole = executor.advance, executor.whole

        def noted(index: int, rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
            self.passes.append(("segment", index, len(set(rows.slots.tolist()))))
            return advance(index, rows, wanted)

        def noted_whole(rows: StepRows, wanted: Int32) -> tuple[list[int], list[float]]:
            self.passes.append(("whole", 0, len(set(rows.slots.tolist()))))
            return whole(rows, wanted)

        executor.advance, executor.whole = noted, noted_whole  # type: ignore[method-assign]

    def widths(self, index: int) -> list[int]:
        return [count for what, place, count in self.passes if (what, place) == ("segment", index)]


def decoded(
    fills: tuple[int, ...] | None, requests: Iterable[Stream]
) -> tuple[WatchedPasses, Counter[str]]:
    """Eight streams with an exit that is often sure, in lockstep or with queues."""
    model = random_model("llama")
    executor = open_executor(model, (2,), 8)
    watched, policy = WatchedPasses(executor), PredictionPolicy((0.13,), 5)
    if fills is None:
        drafter = ExitDrafter(executor, policy)
    else:
        drafter = ReadyDrafter(executor, policy, FillPolicy({1: fills}))
    return watched, counted(run(Decoder(executor, drafter), requests))


def alike() -> list[Stream]:
    return [Stream(f"r{i}", (3 + i, 5), 40) for i in range(8)]


def test_what_waits_for_company_verifies_in_company() -> None:
    lockstep, before = decoded(None, alike())
    ready, after = decoded((1, 4), alike())
    assert before["drafted"] > 40, "there is something to wait for"
    assert len(ready.widths(1)) < len(lockstep.widths(1))
    inside = ready.widths(1)[: len(ready.widths(1)) // 2]
    assert min(inside) >= 4, "while all streams are under way"
    assert after["accepted"] + after["steps"] == before["accepted"] + before["steps"] == 8 * 39


def test_nothing_waits_for_what_cannot_come() -> None:
    watched, total = decoded((ALL_AT_ONCE, ALL_AT_ONCE), alike())
    assert total["accepted"] + total["steps"] == 8 * 39
    assert max(watched.widths(1)) <= 8


def test_beyond_the_largest_batch_all_segments_run_in_one_call() -> None:
    model = random_model("llama")
    for kind in ("ready", "lockstep"):
        executor = open_executor(model, (2, 4), 4)
        watched, policy = WatchedPasses(executor), PredictionPolicy((0.0, 0.0), 3, max_batch=1)
        drafter = (
            ReadyDrafter(executor, policy, FillPolicy({1: (1, 1, 1)}))
            if kind == "ready"
            else ExitDrafter(executor, policy)
        )
        requests = [Stream("a", (1, 2), 30), Stream("b", (3, 4), 6), Stream("c", (5,), 6)]
        found = run(Decoder(executor, drafter), requests)
        executor = open_executor(model, (), 4)
        again = [Stream("a", (1, 2), 30), Stream("b", (3, 4), 6), Stream("c", (5,), 6)]
        assert texts(found) == texts(run(Decoder(executor), again))
        whole = [count for what, _, count in watched.passes if what == "whole"]
        assert whole == [3] * 5, kind
        assert all(count == 1 for what, _, count in watched.passes if what == "segment")
        assert counted(found)["drafted"] > 3, "a alone drafts again"


def test_streams_inside_come_in_when_a_batch_grows_too_large() -> None:
    """One has drafts that wait when two others join."""
    model = random_model("llama", agreement=1.0)
    policy = PredictionPolicy((0.0,), 8, max_batch=1)
    decoder = ready_decoder(model, (2,), policy, (1, 1))
    decoder.add(Stream("a", (1, 2), 30))
    outputs = decoder.step() + decoder.step()
    rest = run(decoder, [Stream("b", (3, 4), 9), Stream("c", (5,), 9)])
    for output in outputs[::-1]:
        rest[output.id].insert(0, output)
    again = [Stream("a", (1, 2), 30), Stream("b", (3, 4), 9), Stream("c", (5,), 9)]
    assert texts(rest) == texts(run(Decoder(open_executor(model, ())), again))
