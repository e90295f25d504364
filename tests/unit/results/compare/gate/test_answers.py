"""When answers are BASE's: of requests that failed, that were not asked, and of further repeats."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from harness.core.names import asked_again
from results.compare.gate.comparison import compare_runs
from results.compare.gate.decision import GateRow
from results.compare.gate.identity import DURATION
from results.compare.gate.margins import GateRules, MarginRule
from results.compare.gate.reduced import NO_ANSWER, ReducedRun
from results.metrics.arrays import Ints
from tests.support.results.reduced_runs import IDENTITY, reduced_trial, timed_run

ANSWERS = GateRules((MarginRule("consistency", 0.01),))
REPEATS, REQUESTS = 4, 200


def answered(answers: Mapping[int, Ints], **how: Any) -> ReducedRun:
    """A run whose repeats have these answers; else each request its own, the same in all."""
    run = timed_run("run", np.full((REPEATS, REQUESTS), 0.01), **how)
    trials = [dataclasses.replace(t, answers=answers.get(t.repeat, t.answers)) for t in run.trials]
    return ReducedRun("run", trials)


def with_answer(place: int, answer: int) -> Ints:
    found = np.arange(REQUESTS) + 10
    found[place] = answer
    return found


def judged(base: ReducedRun, new: ReducedRun) -> GateRow:
    (row,) = compare_runs(base, new, ANSWERS).rows
    return row


@pytest.mark.parametrize("repeat", range(REPEATS))
def test_a_request_that_failed_in_base_does_not_let_others_change(repeat: int) -> None:
    """In any repeat but the first it counted as BASE's repeats differing, and NEW passed."""
    base = answered({repeat: with_answer(7, NO_ANSWER)})
    new = answered(dict.fromkeys(range(REPEATS), with_answer(3, 9999)))
    row = judged(base, new)
    assert (row.verdict, row.note[:14]) == ("fail", "lossless, yet ")


def test_repeats_that_differ_where_the_first_one_failed_still_differ() -> None:
    base = answered({0: with_answer(7, NO_ANSWER), 2: with_answer(7, 9999)})
    assert judged(base, answered({2: with_answer(3, 8888)})).verdict != "fail"


@pytest.mark.parametrize("answer", [9999, NO_ANSWER])
def test_repeats_that_only_new_has_are_read_too(answer: int) -> None:
    """Of a lossless backend on our own kernels: what its further repeats answered was not looked
    at, nor told."""
    few = ReducedRun("BASE", answered({}).trials[:2])
    decision = compare_runs(few, answered({3: with_answer(7, answer)}), ANSWERS)
    (row,) = decision.rows
    assert row.verdict == "fail"
    assert row.note.endswith(", first r7 of repeat 3")
    assert "2 repeats in BASE, 4 in NEW: " in decision.notes[0]
    assert judged(few, answered({})).verdict == "pass"


def test_a_request_that_failed_is_called_so() -> None:
    lost = with_answer(7, NO_ANSWER)
    row = judged(answered({}), answered({2: lost}))
    told = "lossless, yet 1 of 800 requests failed that BASE answered, first r7 of repeat 2"
    assert (row.verdict, row.note) == ("fail", told)
    lost[3] = 9999
    told = "lossless, yet 2 of 800 answers are not BASE's, first r3 of repeat 2; 1 of them failed"
    assert judged(answered({}), answered({2: lost})).note == told
    assert judged(answered({2: lost}), answered({2: lost})).verdict == "pass"


@pytest.mark.parametrize("failed", [2, 6])
def test_requests_that_failed_in_base_hide_no_changed_answers(failed: int) -> None:
    """Of a lossy backend: as answers of BASE that differ they were taken off the changes."""
    lost = {}
    for repeat in range(REPEATS):
        lost[repeat] = with_answer(7, 17)
        lost[repeat][20 + failed * repeat : 20 + failed * (repeat + 1)] = NO_ANSWER
    base = answered(lost, lossless=False)
    changed = np.arange(REQUESTS) + 10
    changed[:8] += 5000
    row = judged(base, answered(dict.fromkeys(range(REPEATS), changed), lossless=False))
    assert (row.verdict, row.base) == ("fail", 1.0)
    assert row.worse_by == pytest.approx(0.04, abs=0.002)


def test_requests_that_fail_now_and_then_in_both_runs_are_no_other_answers() -> None:
    """Of a lossy backend whose requests fail as often as in BASE, though not the same ones."""
    runs = []
    for start in (0, 50):
        lost = {}
        for repeat in range(REPEATS):
            lost[repeat] = with_answer(0, 10)
            lost[repeat][start + 8 * repeat : start + 8 * (repeat + 1)] = NO_ANSWER
        runs.append(answered(lost, lossless=False))
    assert judged(*runs).verdict == "pass"


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    "counts",
    [
        ((60, 61, 62, 61), (60, 60, 60, 60)),
        ((62, 61, 60, 61), (60, 60, 60, 60)),
        ((60, 60, 60, 60), (58, 58, 58, 58)),
        ((60, 60, 60, 60), (60, 59, 60, 60)),
        ((58, 58, 58, 58), (60, 61, 59, 60)),
    ],
)
def test_what_a_run_did_not_get_round_to_is_no_other_answer(
    counts: tuple[tuple[int, ...], tuple[int, ...]], exact: bool
) -> None:
    """With a `duration_s` the quicker side asks more: a NEW that was slower by 1% failed."""
    base, new = (asked(each, exact=exact) for each in counts)
    assert judged(base, new).verdict == "pass"
    changed = [dataclasses.replace(t, answers=t.answers + 5000) for t in new.trials]
    assert judged(base, ReducedRun("NEW", changed)).verdict == "fail"


def test_requests_that_new_has_not_although_nothing_ended_its_load_are_no_equal_answers() -> None:
    """Of a load of so many requests; 4 of 200 were told as equal."""
    identity = {**IDENTITY, DURATION: None}
    base = answered({}, identity=identity)
    few = [
        dataclasses.replace(
            t, ids=t.ids[:4], answers=t.answers[:4], values={"tpot_s": t.values["tpot_s"][:4]}
        )
        for t in base.trials
    ]
    row = judged(base, ReducedRun("NEW", few))
    assert row.verdict == "fail"
    assert row.note.startswith("lossless, yet 784 of 800 requests failed that BASE answered")


def test_an_answer_that_another_repeat_of_base_has_is_looked_at() -> None:
    """Where NEW's repeat stands beside one that failed."""
    base = answered({2: with_answer(7, NO_ANSWER)})
    row = judged(base, answered({2: with_answer(7, 9999)}))
    assert (row.verdict, row.note[-20:]) == ("fail", "first r7 of repeat 2")


def asked(counts: Sequence[int], **how: Any) -> ReducedRun:
    """A run of 20 prompts that are asked again and again, so many requests in each repeat."""
    rows = [f"gsm8k-{n}" for n in range(20)]
    every = [*rows, *(name for lap in range(1, 4) for name in asked_again(rows, lap))]
    trials = []
    for repeat, count in enumerate(counts):
        values = {"tpot_s": np.full(count, 0.01)}
        answers = np.arange(count) % len(rows) + 10
        trials.append(reduced_trial(repeat, values, ids=every[:count], answers=answers, **how))
    return ReducedRun("run", trials)
