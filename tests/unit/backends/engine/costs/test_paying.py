"""Drafting is left where it takes longer than it spares, by a clock that is set by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from backends.engine.costs.paying import BETWEEN, BLOCK, ENOUGH, OFF, RARELY, SURE, Paying
from backends.engine.drafters.adaptive import AdaptiveDrafts
from backends.engine.streams import Stream
from tests.support.engine.priced_drafts import Chance, Priced

PLAIN_S = 1.0


@dataclass
class TimedSteps:
    """On which a step takes one second, or so many with drafts, which bring three tokens."""

    drafting_s: float
    now_s: float = 0.0
    tokens: int = 10
    sequences: int = 1
    made: list[bool] = field(default_factory=list)
    """By step: whether drafts were made."""

    def __post_init__(self) -> None:
        self.paying = Paying(lambda: self.now_s)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.paying.over(self.sequences, self.tokens)
            drafts = self.paying.may_draft(self.sequences, self.tokens)
            self.made.append(drafts)
            self.now_s += self.drafting_s if drafts else PLAIN_S
            self.tokens += 3 if drafts else 1


def test_what_pays_goes_on_with_a_plain_step_now_and_then() -> None:
    machine = TimedSteps(2.0)
    machine.run(BLOCK)
    assert not any(machine.made), "nothing else says what plain steps take"
    machine.run(8 * RARELY)
    blocks = machine.made[BLOCK:].count(False)
    assert 4 * BLOCK <= blocks <= 9 * BLOCK


def test_what_hardly_pays_is_looked_at_more_often() -> None:
    machine = TimedSteps(3 / (SURE - 0.1))
    machine.run(BLOCK + 10 * (BETWEEN + BLOCK))
    assert machine.made.count(False) == 11 * BLOCK


def test_what_does_not_pay_is_left_and_tried_again_ever_later() -> None:
    machine = TimedSteps(3.3)
    machine.run(20 * OFF[1])
    assert machine.made[: BLOCK + ENOUGH + 1] == [False] * BLOCK + [True] * ENOUGH + [False]
    assert machine.made.count(True) < 0.005 * len(machine.made)
    machine.made.clear()
    machine.run(2 * OFF[1])
    assert any(machine.made), "it may pay again, and nothing else would tell"


def test_it_comes_back_when_it_pays_again() -> None:
    machine = TimedSteps(3.3)
    machine.run(1000)
    machine.drafting_s = 1.5
    machine.run(4 * OFF[0])
    machine.made.clear()
    machine.run(500)
    assert machine.made.count(True) > 450


def test_batches_of_another_size_are_judged_by_themselves() -> None:
    machine = TimedSteps(3.3)
    machine.run(200)
    assert not machine.made[-1]
    machine.sequences, machine.drafting_s = 8, 2.0
    machine.run(BLOCK + ENOUGH)
    assert machine.made[-ENOUGH:] == [True] * ENOUGH


def test_steps_in_which_a_batch_changes_do_not_count() -> None:
    """Each takes a hundred times as long, for somebody's prompt is read."""
    machine = TimedSteps(2.0)
    machine.run(BLOCK)
    for _ in range(200):
        machine.run(3)
        machine.paying.over(2, 50)
        machine.now_s += 100
    assert machine.made[-3:] == [True] * 3


def test_the_end_of_one_sequence_is_the_end_of_a_step() -> None:
    """Answers of two steps, of which the second takes long: without it drafts would seem to pay."""
    machine = TimedSteps(2.0)
    machine.run(BLOCK)
    for _ in range(ENOUGH):
        machine.run(2)
        machine.now_s += 5.0
        machine.paying.over(1, machine.tokens)
        machine.now_s += 50.0
    assert not machine.paying.may_draft(1, 10)


def test_what_held_up_a_plain_step_does_not_make_drafts_pay() -> None:
    machine = TimedSteps(3.3)
    machine.run(BLOCK - 2)
    machine.now_s += 50.0
    machine.run(2 + ENOUGH + 2)
    assert not machine.made[-1]


@pytest.mark.parametrize(("drafting_us", "least", "most"), [(150.0, 0.9, 1.0), (600.0, 0.0, 0.1)])
def test_adaptive_drafts_heed_it(drafting_us: float, least: float, most: float) -> None:
    """By costs and acceptance four drafts pay: 5 tokens for 1.4 steps. What they really take
    decides, also after a trial has begun anew."""
    now_us = 0.0
    inner = Chance(4)
    paying = Paying(lambda: now_us)
    adaptive = AdaptiveDrafts(inner, Priced(10), 0.9, paying=paying)
    found = []
    for _ in range(20):
        stream = Stream("r", (1,), 10**6, tokens=[1], done=[0], slot=0)
        for _ in range(100):
            adaptive.draft([stream])
            made = stream.drafts
            found.append(made > 0)
            now_us += drafting_us if made else 100.0
            stream.tokens.append(1)
            stream.done = [len(stream.tokens) - 1]
            adaptive.verified(stream, made)
        adaptive.reset()
    assert least <= sum(found) / len(found) <= most
