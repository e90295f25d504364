"""How long anything was on its way, counted by hand."""

from __future__ import annotations

import pytest

from harness.core.nouns import Generation
from results.metrics import arrays
from results.metrics.latency import busy_share
from tests.support.results.make_trials import generation, record, trial


def share(*found: Generation) -> float | None:
    return busy_share(arrays.from_record(record(trial("vllm"), found)))


def test_gaps_between_answers_are_idle() -> None:
    found = share(
        generation("a", [10, 20], scheduled_ms=0),
        generation("b", [30, 40], scheduled_ms=10),  # comes before a is answered
        generation("c", [90, 100], scheduled_ms=70),
    )
    assert found == pytest.approx(0.7), "from 40 to 70 of 100 ms nothing was asked"


def test_a_long_answer_covers_the_short_ones_behind_it() -> None:
    found = share(
        generation("a", [10, 80], scheduled_ms=0),
        generation("b", [20, 30], scheduled_ms=15),
        generation("c", [95, 100], scheduled_ms=90),
    )
    assert found == pytest.approx(0.9)


def test_the_order_of_the_records_makes_no_difference() -> None:
    late, early = (
        generation("late", [60, 70], scheduled_ms=50),
        generation("early", [10, 30], scheduled_ms=0),
    )
    assert share(late, early) == share(early, late) == pytest.approx(5 / 7)


def test_one_that_was_never_answered_is_on_its_way_to_the_end() -> None:
    failed = generation("lost", [], scheduled_ms=20, finished="error")
    assert (
        share(generation("a", [10, 20]), failed, generation("b", [90, 100], scheduled_ms=80)) == 1
    )


def test_without_an_answer_nothing_can_be_said() -> None:
    assert share(generation("lost", [], finished="error")) is None
