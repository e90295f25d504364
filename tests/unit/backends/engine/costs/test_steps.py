"""Costs of drafting held against whole steps, on a clock that only passes and drafts move."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from backends.engine.costs.steps import WholeSteps, whole_steps
from backends.engine.drafters.base import Drafter
from backends.engine.executors.base import Executor
from backends.engine.streams import Stream
from tests.support.engine.random_models import open_executor, random_model

PASS_US, ROW_US, DRAFT_US = 100.0, 10.0, 20.0


class HandParts:
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
class PassedTime:
    now: float = 0.0

    def tick(self, us: float) -> None:
        self.now += 1e-6 * us


@dataclass
class SomeDrafts:
    """At most so many drafts of each stream."""

    clock: PassedTime
    most: int = 9
    every: int = 1
    """One in so many streams drafts."""
    hidden: Callable[[int], float] = lambda streams: 0.0
    """Microseconds that drafting takes beyond its parts, by the number of streams."""
    changing_us: float = 0.0
    """Of a step that is not of the sort of the last one."""
    settling_us: float = 0.0
    """Of each of the first six steps without drafts behind one with some."""
    exits: tuple[int, ...] = ()
    max_drafts: int = 9
    streams: set[str] = field(default_factory=set)
    drafted: bool = False
    plain: int = 0

    def draft(self, streams: Sequence[Stream]) -> Sequence[Stream]:
        drafted = False
        for stream in streams:
            self.streams.add(stream.id)
            some = int(stream.id) % self.every == 0
            more = min(self.most, stream.room(self.max_drafts)) if some else 0
            stream.tokens += [1] * more
            self.clock.tick(DRAFT_US * more)
            drafted = drafted or more > 0
        if drafted:
            self.clock.tick(self.hidden(len(streams)))
        if drafted != self.drafted:
            self.clock.tick(self.changing_us)
        self.plain = 0 if drafted else self.plain + 1
        if 0 < self.plain <= 6:
            self.clock.tick(self.settling_us)
        self.drafted = drafted
        return streams

    def verified(self, stream: Stream, accepted: int) -> dict[str, float]:
        return {}

    def reset(self) -> None:
        self.streams.clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> PassedTime:
    found = PassedTime()
    monkeypatch.setattr("backends.engine.costs.steps.time.perf_counter", lambda: found.now)
    return found


def timed_executor(clock: PassedTime, slots: int, scale: float = 1.0) -> Executor:
    """Its passes move the clock alone."""
    executor: Any = open_executor(random_model("llama"), (), slots)
    advance = executor.advance

    def timed(index: int, rows: Any, wanted: Any) -> Any:
        clock.tick(scale * (PASS_US + ROW_US * len(rows)))
        return advance(index, rows, wanted)

    executor.advance = timed
    return executor  # type: ignore[no-any-return]


def measured(clock: PassedTime, drafter: Drafter, slots: int = 16) -> WholeSteps:
    found = whole_steps(HandParts(), timed_executor(clock, slots), drafter)
    assert isinstance(found, WholeSteps)
    return found


def test_parts_that_are_right_stay_as_they_are(clock: PassedTime) -> None:
    drafter = SomeDrafts(clock)
    found = measured(clock, drafter)
    assert found.sequences == (1, 4, 16)
    assert found.drafts == (1, 4, 9)
    assert [list(row) for row in found.factors] == [pytest.approx([1.0] * 3)] * 3
    given = 3, 99, [1.0, 0.5], [0.5, 0.1]
    assert found.of(*given) == pytest.approx(HandParts().of(*given))
    assert found.read_us == HandParts.read_us
    assert (drafter.max_drafts, drafter.streams) == (9, set())


def test_what_parts_leave_out_is_found_and_plain_steps_stay(clock: PassedTime) -> None:
    """70 us beside one sequence's 110, and nothing in a batch. There is no room for nine drafts."""
    drafter = SomeDrafts(clock, hidden=lambda streams: 70.0 if streams == 1 else 0.0)
    found = measured(clock, drafter)
    assert [list(row) for row in found.factors] == [
        pytest.approx([210 / 140, 300 / 230, 300 / 230]),
        pytest.approx([1.0] * 3),
        pytest.approx([1.0] * 3),
    ]

    def us(sequences: int, most: int = 5) -> list[float]:
        return found.of(sequences, 99, [1.0] * most, [0.5] * most)

    two = 170 * (210 / 140 * 2 + 300 / 230) / 3
    assert us(1) == pytest.approx(
        [110, 210, two, 200 * (1.5 + 2 * 300 / 230) / 3, 300, 260 * 300 / 230]
    )
    parts = HandParts().of(2, 99, [1.0], [0.5])
    assert us(2, 1) == pytest.approx([parts[0], parts[1] * 1.25]), "half way from one to four"
    assert us(64) == pytest.approx(HandParts().of(64, 99, [1.0] * 5, [0.5] * 5))


def test_a_number_of_drafts_without_room_costs_the_others_no_turn(
    clock: PassedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is none for nine: what was thrown out for them is not taken to be under way."""
    counts: list[int] = []
    median = statistics.median

    def counted(values: list[float]) -> float:
        counts.append(len(values))
        return median(values)

    monkeypatch.setattr("backends.engine.costs.steps.statistics.median", counted)
    measured(clock, SomeDrafts(clock), slots=1)
    assert counts == [6, 6]


def test_many_drafts_are_timed_too(clock: PassedTime) -> None:
    """What a step takes beyond its parts weighs less on five drafts than on four."""
    drafter = SomeDrafts(clock, most=5, max_drafts=5, hidden=lambda _: 70.0)
    found = measured(clock, drafter)
    assert drafter.streams == set()
    one, four, five = 210 / 140, 300 / 230, 330 / 260
    assert found.drafts == (1, 4, 5)
    assert found.factors[0] == pytest.approx((one, four, five))
    assert found.of(1, 99, [1.0] * 5, [0.5] * 5)[4:] == pytest.approx([300, 330])


def test_sequences_that_draft_less_than_others_are_charged_for_what_they_draft(
    clock: PassedTime,
) -> None:
    """Of two drafts that every other sequence makes a share of a half has each."""
    seen: list[tuple[list[float], list[float]]] = []

    class Told(HandParts):
        def of(
            self, sequences: int, positions: int, tokens: Sequence[float], stands: Sequence[float]
        ) -> list[float]:
            seen.append((list(tokens), list(stands)))
            return super().of(sequences, positions, tokens, stands)

    drafter = SomeDrafts(clock, most=2, every=2)
    found = whole_steps(Told(), timed_executor(clock, 4), drafter)
    assert isinstance(found, WholeSteps)
    assert found.factors[1] == pytest.approx((1.0,) * 3)
    tokens, stands = seen[-1]
    assert tokens == [0.5, 0.5, 0, 0]
    assert 0.5 >= stands[0] >= stands[1] >= stands[2] == 0


def test_the_first_step_of_a_sort_is_not_counted(clock: PassedTime) -> None:
    found = measured(clock, SomeDrafts(clock, changing_us=5000.0))
    assert found.factors[0] == pytest.approx((1, 1, 1))


def test_plain_steps_are_timed_once_they_have_settled(clock: PassedTime) -> None:
    found = measured(clock, SomeDrafts(clock, settling_us=50.0))
    assert found.factors[0] == pytest.approx((1, 1, 1))


def test_a_drafter_that_may_draft_one_token_alone_is_timed_with_one(clock: PassedTime) -> None:
    drafter = SomeDrafts(clock, most=1, max_drafts=1, hidden=lambda _: 70.0)
    found = measured(clock, drafter)
    assert found.drafts == (1,)
    assert found.factors[0] == pytest.approx((210 / 140,))


def test_batches_end_at_the_slots_and_where_steps_take_long(clock: PassedTime) -> None:
    assert measured(clock, SomeDrafts(clock), slots=5).sequences == (1, 4, 5)
    assert measured(clock, SomeDrafts(clock), slots=3).sequences == (1, 3)
    slow = timed_executor(clock, 16, scale=10_000)
    begin = clock.now
    found = whole_steps(HandParts(), slow, SomeDrafts(clock, hidden=lambda _: 70.0))
    assert isinstance(found, WholeSteps)
    assert found.sequences == (1,)
    assert clock.now - begin < 30, "a few turns of the fewest steps"


def test_without_a_draft_or_room_for_one_the_parts_stay(clock: PassedTime) -> None:
    parts = HandParts()
    drafter = SomeDrafts(clock, most=0, hidden=lambda _: 70.0)
    assert whole_steps(parts, timed_executor(clock, 4), drafter) is parts
    assert drafter.max_drafts == 9
    short: Any = timed_executor(clock, 4)
    short.max_len = 20
    hidden = SomeDrafts(clock, hidden=lambda _: 70.0)
    assert whole_steps(parts, short, hidden) is parts
    short.max_len = 60
    found = whole_steps(parts, short, hidden)
    assert isinstance(found, WholeSteps)
    assert found.factors[0] == pytest.approx((210 / 140,) * 3), "no room for four"
