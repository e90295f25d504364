"""Answers that flip: of lossless backends whose kernels round by what else runs, and of scores."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from results.compare.gate.calibration import calibrated
from results.compare.gate.comparison import compare_runs
from results.compare.gate.decision import Decision
from results.compare.gate.margins import GateRules, MarginRule
from results.compare.gate.reduced import NO_ANSWER, ReducedRun, ReducedTrial
from results.compare.intervals.exchanged import LEAST, p_exchanged
from tests.support.results.reduced_runs import cell, joined, timed_run

ANSWERS = GateRules((MarginRule("consistency", 0.01),))
REPEATS, REQUESTS = 4, 64


def flipping(seed: int, p: float, *, cells: int = 1, lost: int = 0) -> ReducedRun:
    """A lossless vLLM, each of whose answers is another one with chance `p`; the first `lost`
    requests have another answer in every repeat."""
    chance = np.random.default_rng([7, seed])
    runs = []
    for number in range(cells):
        name = cell("b0", workload=f"w{number % 4}", load=f"closed c={1 + number // 4}")
        run = timed_run("run", np.full((REPEATS, REQUESTS), 0.01), cell=name)
        trials = []
        for trial in run.trials:
            answers = np.array(trial.answers)
            answers[:lost] += 1000
            answers[chance.random(REQUESTS) < p] += 2000
            trials.append(dataclasses.replace(trial, answers=answers, exact=False))
        runs.append(ReducedRun("run", trials))
    return joined("run", runs)


def compared(seed: int, p: float, *, cells: int = 1, lost: int = 0) -> Decision:
    base = flipping(2 * seed, p, cells=cells)
    return compare_runs(base, flipping(2 * seed + 1, p, cells=cells, lost=lost), ANSWERS)


@pytest.mark.parametrize("p", [0.001, 0.01])
def test_equal_versions_whose_answers_flip_pass(p: float) -> None:
    """Held to one other token they failed in 0.87 and 0.58 of such files; each cell by itself, they
    were inconclusive in all of them."""
    found = [compared(seed, p, cells=12).verdict for seed in range(30)]
    assert found.count("fail") / len(found) <= 0.08
    assert found.count("pass") / len(found) >= 0.8


def test_a_backend_whose_answers_are_worse_by_its_margin_does_not_pass() -> None:
    """One of 64 requests changed for good in every cell: 1.6%."""
    found = []
    for seed in range(30):
        base, new = (flipping(2 * seed + n, 0.002, cells=12, lost=n) for n in (0, 1))
        found.append(compare_runs(base, new, ANSWERS).verdict)
    assert "pass" not in found


def test_one_cell_that_is_worse_is_not_passed_by_the_others() -> None:
    base, good = flipping(0, 0.001, cells=11), flipping(1, 0.001, cells=11)
    for lost in (2, 3, 8):
        sides = []
        for run, changed in ((base, 0), (good, lost)):
            named = [
                dataclasses.replace(t, cell=cell("b0", load="closed c=32"))
                for t in flipping(9, 0.0, lost=changed).trials
            ]
            sides.append(joined("run", [run, ReducedRun("run", named)]))
        row = compare_runs(sides[0], sides[1], ANSWERS).rows[-1]
        assert row.verdict != "pass"
        assert row.verdict == "fail" or lost == 2


def test_answers_that_changed_for_good_fail() -> None:
    found = [compared(seed, 0.001, lost=5).verdict for seed in range(20)]
    assert found == ["fail"] * 20
    (row,) = compared(0, 0.001, lost=5).rows
    assert "lossless, yet 2" in row.note
    assert "by chance: p = 1.9e-08" in row.note


def test_one_answer_that_changed_for_good_is_not_called_equal() -> None:
    """By itself it is rarer than one in twenty; among twelve rows such a one is to be expected."""
    assert compared(0, 0.0, lost=1).verdict == "fail"
    base, new = (flipping(seed, 0.001, cells=11) for seed in (0, 1))
    sides = []
    for run, lost in ((base, 0), (new, 1)):
        trials = flipping(0, 0.0, lost=lost).trials
        named = [dataclasses.replace(t, cell=cell("lost")) for t in trials]
        sides.append(joined("run", [run, ReducedRun("run", named)]))
    decision = compare_runs(sides[0], sides[1], ANSWERS)
    assert decision.rows[-1].verdict == "inconclusive"


@pytest.mark.parametrize("repeats", [[0, 1, 2, 3], [1, 2]])
def test_requests_that_failed_in_base_and_no_longer_do_are_no_other_answers(
    repeats: list[int],
) -> None:
    """NEW had repaired three requests, and one flip elsewhere failed it at p = 2e-5."""
    plain = flipping(0, 0.0)
    base = ReducedRun("run", [failing(t) if t.repeat in repeats else t for t in plain.trials])
    answers = np.array(plain.trials[0].answers)
    answers[9] += 5
    flipped = dataclasses.replace(plain.trials[0], answers=answers)
    new = ReducedRun("run", [flipped, *plain.trials[1:]])
    (row,) = compare_runs(base, new, ANSWERS).rows
    assert row.verdict != "fail"
    assert "1 of 256 answers are not BASE's" in row.note
    assert "by chance: p = 1" in row.note
    lost = ReducedRun("run", [failing(t) for t in plain.trials])
    assert compare_runs(plain, lost, ANSWERS).rows[0].verdict == "fail"


def failing(trial: ReducedTrial) -> ReducedTrial:
    """The trial without an answer to three requests."""
    answers = np.array(trial.answers)
    answers[:3] = NO_ANSWER
    return dataclasses.replace(trial, answers=answers)


def test_which_side_has_the_odd_answer_makes_no_difference() -> None:
    """The one that BASE has passed, the one that NEW has failed."""
    plain, odd = flipping(0, 0.0), flipping(0, 0.0)
    answers = np.array(odd.trials[1].answers)
    answers[3] += 5
    trials = [dataclasses.replace(t, answers=answers) if t.repeat == 1 else t for t in odd.trials]
    odd = ReducedRun("odd", trials)
    assert compare_runs(odd, plain, ANSWERS).verdict == "pass"
    assert compare_runs(plain, odd, ANSWERS).verdict != "fail"


def test_exchanged_answers_are_as_likely_as_they_can_be_shared_out() -> None:
    """A request that all of BASE answers one way and all of NEW another: one of 70 ways to share
    out four and four, and one that is as good with the sides changed."""
    apart = np.repeat([[0], [1]], 4, axis=0)
    assert p_exchanged(apart, 4) == pytest.approx(2 / 70)
    assert p_exchanged(np.tile(apart, 3), 4) == pytest.approx((2 / 70) ** 3)
    assert p_exchanged(np.tile(apart, 6), 4) == pytest.approx((2 / 70) ** 6, rel=1e-3)
    assert p_exchanged(np.tile(apart, 40), 4) == LEAST
    one_row = np.zeros(6, np.int64)
    assert p_exchanged(np.tile(apart, 6), 4, one_row) == pytest.approx(2 / 70)
    assert p_exchanged(np.zeros((8, 5), np.int64), 4) == 1
    assert p_exchanged(np.zeros((8, 0), np.int64), 4) == 1
    odd = np.zeros((8, 5), np.int64)
    odd[6, 2] = 1
    assert p_exchanged(odd, 4) == pytest.approx(1)


@pytest.mark.parametrize(("repeats", "of_base"), [(8, 4), (7, 3), (20, 10)])
def test_the_chance_is_that_of_drawing(repeats: int, of_base: int) -> None:
    """Also where there are more ways than are looked at."""
    chance = np.random.default_rng(repeats)
    answers = np.zeros((repeats, 12), np.int64)
    answers[of_base:] += chance.random((repeats - of_base, 12)) < 0.3
    sides = np.arange(repeats) < of_base
    # where two answers are possible, as many pairs differ as sides have other ones
    counted = []
    for _ in range(4000):
        each = np.array([chance.permutation(column) for column in answers.T]).T
        base, new = each[sides].sum(axis=0), each[~sides].sum(axis=0)
        counted.append((base * (repeats - of_base - new) + new * (of_base - base)).sum())
    base, new = answers[sides].sum(axis=0), answers[~sides].sum(axis=0)
    seen = (base * (repeats - of_base - new) + new * (of_base - base)).sum()
    share = np.mean(np.array(counted) >= seen)
    assert p_exchanged(answers, of_base) == pytest.approx(share, abs=0.02)


def test_answers_that_changed_for_good_fail_in_a_long_file_at_a_small_alpha() -> None:
    """9,999 draws gave no p below 0.0001, of which Holm's correction over 120 rows made 0.012."""
    rules = GateRules(ANSWERS.rules, alpha=0.001)
    base, new = flipping(0, 0.001, cells=119), flipping(1, 0.001, cells=119)
    sides = []
    for run, lost in ((base, 0), (new, 8)):
        named = [
            dataclasses.replace(t, cell=cell("lost")) for t in flipping(9, 0.0, lost=lost).trials
        ]
        sides.append(joined("run", [run, ReducedRun("run", named)]))
    row = compare_runs(sides[0], sides[1], rules).rows[-1]
    assert (row.cell.backend, row.verdict) == ("lost", "fail")


def test_margins_of_what_flips_are_held_in_four_of_five() -> None:
    rules = GateRules((MarginRule("tpot_s", 0.05), MarginRule("consistency", 0.01)))
    passed = []
    for seed in range(60):
        held = calibrated(flipping(3 * seed, 0.02), rules, 0.05)
        margin = next(one.margin for one in held if one.metric == "consistency")
        known = GateRules((MarginRule("consistency", max(margin, 0.01)),))
        sides = flipping(3 * seed + 1, 0.02), flipping(3 * seed + 2, 0.02)
        passed.append(compare_runs(*sides, known).verdict == "pass")
    assert 0.65 <= np.mean(passed) <= 0.99


def test_what_never_flips_keeps_its_margin() -> None:
    rules = GateRules((MarginRule("tpot_s", 0.05), MarginRule("consistency", 0.01)))
    assert [one.metric for one in calibrated(flipping(0, 0.0), rules, 0.05)] == ["tpot_s"]


def scored(seed: int, lost: int, cells: int = 12) -> ReducedRun:
    """Scores that flip in four of a thousand answers; the first `lost` of a cell's requests are
    wrong in one of its cells, in every repeat."""
    chance = np.random.default_rng([9, seed])
    trials = []
    for trial in flipping(seed, 0.0, cells=cells).trials:
        right = np.ones(REQUESTS)
        right[chance.random(REQUESTS) < 0.004] = 0.0
        right[: lost * (trial.cell.load == "closed c=1" and trial.cell.workload == "w0")] = 0.0
        trials.append(dataclasses.replace(trial, values={"exact_match": right}))
    return ReducedRun("run", trials)


@pytest.mark.parametrize(("lost", "most"), [(3, 0.2), (6, 0.0)])
def test_a_score_that_fell_in_one_cell_is_not_passed_by_the_others(lost: int, most: float) -> None:
    """By 5 and 9%, of which a mean over twelve cells shows less than half a percent: by that alone
    60% and more of such files passed."""
    rules = GateRules((MarginRule("exact_match", 0.01),))
    found = [
        compare_runs(scored(2 * seed, 0), scored(2 * seed + 1, lost), rules).verdict
        for seed in range(20)
    ]
    assert found.count("pass") / len(found) <= most
    equal = [
        compare_runs(scored(2 * seed, 0), scored(2 * seed + 1, 0), rules).verdict
        for seed in range(20)
    ]
    assert equal.count("pass") / len(equal) >= 0.8


def test_answers_that_were_never_told_show_nothing() -> None:
    base, new = flipping(0, 0.0), flipping(1, 0.0, lost=5)
    ids = [f"r{n // 2}" + "#2" * (n % 2) for n in range(REQUESTS)]
    untold = []
    for run in (base, new):
        trials = []
        for one in run.trials:
            answers = np.array(one.answers)
            answers[one.repeat % 2 :: 2] = 0
            trials.append(dataclasses.replace(one, answers=answers, ids=ids))
        untold.append(ReducedRun(run.where, trials))
    (row,) = compare_runs(untold[0], untold[1], ANSWERS).rows
    assert row.verdict == "inconclusive"
    assert "no request's were told in every repeat" in row.note
