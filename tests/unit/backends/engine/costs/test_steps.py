"""Costs of drafting held against whole steps, on a clock that only passes and drafts move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from backends.engine.costs.steps import SEQUENCES, WholeSteps, whole_steps
from backends.engine.drafters.base import Drafter
from backends.engine.executors.base import Executor
from backends.engine.streams import Stream
from tests.support.engine.random_models import open_executor, random_model

PASS_US, ROW_US, DRAFT_US = 100.0, 10.0, 20.0


class Parts:
    """What passes, rows and drafts take by themselves."""

    read_us = 7.0

    def of(
        self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
    ) -> list[float]:
        return [
            PASS_US + sequences * (ROW_US * (1 + sum(tokens[:k])) + DRAFT_US * sum(tokens[:k]))
            for k in range(len(tokens) + 1)
        ]


@dataclass
class Clock:
    now: float = 0.0

    def tick(self, us: float) -> None:
        self.now += 1e-6 * us


@dataclass
class Drafting:
    """So many drafts of each stream, at most."""

    clock: Clock
    most: int = 9
    hidden: Callable[[int], float] = lambda streams: 0.0
    """Microseconds that drafting takes beyond its parts, by the number of streams."""
    changing_us: float = 0.0
    """Of a step that is not of the sort of the last one."""
    exits: tuple[int, ...] = ()
    max_drafts: int = 9
    streams: set[str] = field(default_factory=set)
    drafted: bool = False

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        drafted = False
        for stream in streams:
            self.streams.add(stream.id)
            more = min(self.most, stream.room(self.max_drafts))
            stream.tokens += [1] * more
            self.clock.tick(DRAFT_US * more)
            drafted = drafted or more > 0
        if drafted:
            self.clock.tick(self.hidden(len(streams)))
        if drafted != self.drafted:
            self.clock.tick(self.changing_us)
        self.drafted = drafted
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        return {}

    def reset(self) -> None:
        self.streams.clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("backends.engine.costs.steps.time.perf_counter", lambda: found.now)
    return found


def timed_executor(clock: Clock, slots: int, scale: float = 1.0) -> Executor:
    """Its passes move the clock alone."""
    executor: Any = open_executor(random_model("llama"), (), slots)
    advance = executor.advance

    def timed(index: int, rows: Any, wanted: Any) -> Any:
        clock.tick(scale * (PASS_US + ROW_US * len(rows)))
        return advance(index, rows, wanted)

    executor.advance = timed
    return executor  # type: ignore[no-any-return]


def measured(clock: Clock, drafter: Drafter, slots: int = 16) -> WholeSteps:
    found = whole_steps(Parts(), timed_executor(clock, slots), drafter)
    assert isinstance(found, WholeSteps)
    return found


def test_parts_that_are_right_stay_as_they_are(clock: Clock) -> None:
    drafter = Drafting(clock)
    found = measured(clock, drafter)
    assert found.sequences == SEQUENCES
    assert found.factors == pytest.approx((1.0, 1.0, 1.0))
    assert found.of(3, 99, [1.0, 0.5], [0.5, 0.1]) == pytest.approx(
        Parts().of(3, 99, [1.0, 0.5], [0.5, 0.1])
    )
    assert found.read_us == Parts.read_us
    assert (drafter.max_drafts, drafter.streams) == (9, set())


def test_what_parts_leave_out_is_found_and_plain_steps_stay(clock: Clock) -> None:
    """70 us beside one sequence's 110, and nothing in a batch: by one and by three drafts in turns,
    of which the median lies between both."""
    drafter = Drafting(clock, hidden=lambda streams: 70.0 if streams == 1 else 0.0)
    found = measured(clock, drafter)
    one, three = 210 / 140, 270 / 200
    assert found.factors == pytest.approx(((one + three) / 2, 1.0, 1.0))
    plain, *others = Parts().of(1, 99, [1.0] * 3, [0.5] * 3)
    factor = found.factors[0]
    assert found.of(1, 99, [1.0] * 3, [0.5] * 3) == [plain, *(us * factor for us in others)]
    between = found.of(2, 99, [1.0], [0.5])[1] / Parts().of(2, 99, [1.0], [0.5])[1]
    assert between == pytest.approx((factor + 1) / 2), "half way from one to four"
    assert found.of(64, 99, [1.0], [0.5]) == pytest.approx(Parts().of(64, 99, [1.0], [0.5]))


def test_the_first_step_of_a_sort_is_not_counted(clock: Clock) -> None:
    assert measured(clock, Drafting(clock, changing_us=5000.0)).factors == pytest.approx((1, 1, 1))


def test_a_drafter_that_may_draft_one_token_alone_is_timed_with_one(clock: Clock) -> None:
    drafter = Drafting(clock, most=1, max_drafts=1, hidden=lambda _: 70.0)
    assert measured(clock, drafter).factors[0] == pytest.approx(210 / 140)


def test_batches_end_at_the_slots_and_where_steps_take_long(clock: Clock) -> None:
    assert measured(clock, Drafting(clock), slots=5).sequences == (1, 4)
    slow = timed_executor(clock, 16, scale=10_000)
    begin = clock.now
    found = whole_steps(Parts(), slow, Drafting(clock, hidden=lambda _: 70.0))
    assert isinstance(found, WholeSteps)
    assert found.sequences == (1,)
    assert clock.now - begin < 40 * 1.4, "three turns of no more than the fewest steps"


def test_without_a_draft_or_room_for_one_the_parts_stay(clock: Clock) -> None:
    parts = Parts()
    drafter = Drafting(clock, most=0, hidden=lambda _: 70.0)
    assert whole_steps(parts, timed_executor(clock, 4), drafter) is parts
    assert drafter.max_drafts == 9
    short: Any = timed_executor(clock, 4)
    short.max_len = 40
    assert whole_steps(parts, short, Drafting(clock, hidden=lambda _: 70.0)) is parts
