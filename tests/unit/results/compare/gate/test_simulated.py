"""How often the gate is wrong, and how often it finds what is there: simulated comparisons."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from results.compare.gate.comparison import compare_runs
from results.compare.gate.decision import Decision
from results.compare.gate.margins import GateRules, MarginRule
from results.compare.gate.reduced import ReducedRun
from results.compare.gate.verdicts import detectable
from results.compare.intervals.crossed import CrossedMean
from tests.support.results.reduced_runs import cell, joined, timed_run, wandering

CELLS = 8
COMPARISONS = 200


def simulated(
    seed: int,
    rules: GateRules,
    *,
    slower: float = 0.0,
    wander: float = 0.05,
    repeats: int = 5,
    cells: int = CELLS,
) -> Decision:
    """A file of cells; all of NEW's are slower by as much."""
    chance = np.random.default_rng([2026, seed])
    runs: list[list[ReducedRun]] = [[], []]
    for number in range(cells):
        for side, change in zip(runs, (0.0, slower), strict=True):
            times = wandering(chance, repeats, slower=change, wander=wander)
            side.append(timed_run("a run", times, cell=cell(f"backend{number}")))
    base, new = (joined(name, side) for name, side in zip(("BASE", "NEW"), runs, strict=True))
    return compare_runs(base, new, rules)


def rate(verdict: str, margin: float, **how: float) -> float:
    rules = GateRules((MarginRule("tpot_s", margin),))
    found = [
        simulated(seed, rules, **how).verdict  # type: ignore[arg-type]
        for seed in range(COMPARISONS)
    ]
    return found.count(verdict) / COMPARISONS  # type: ignore[arg-type]


def test_equal_versions_on_a_wandering_machine_do_not_fail() -> None:
    assert rate("fail", 0.05) <= 0.05


def test_versions_that_are_worse_by_their_margin_everywhere_fail_at_the_stated_rate() -> None:
    """The hardest case: 5% is the chance for the file of 8 cells, not for each. The bound allows
    for 200 draws of that chance (99.9%)."""
    assert 0.0 < rate("fail", 0.05, slower=0.05) <= 0.11


@pytest.mark.parametrize(("repeats", "cells", "most"), [(2, 8, 0.11), (2, 40, 0.15), (3, 40, 0.15)])
def test_few_repeats_that_agree_by_luck_fail_no_file(repeats: int, cells: int, most: float) -> None:
    """By the requests' degrees of freedom it would be 0.2, 0.5 and 0.16 to 0.2. Fewer draws of the
    larger files: the bound allows for them likewise."""
    rules, failed, draws = GateRules((MarginRule("tpot_s", 0.05),)), 0, 1600 // cells
    for seed in range(draws):
        found = simulated(seed, rules, slower=0.05, wander=0.03, repeats=repeats, cells=cells)
        failed += found.verdict == "fail"
    assert failed / draws <= most


def test_a_version_that_is_worse_by_its_margin_does_not_pass() -> None:
    assert rate("pass", 0.05, slower=0.05, wander=0.01) <= 0.05


@pytest.mark.parametrize(("slower", "wander"), [(0.05, 0.005), (0.10, 0.01), (0.20, 0.03)])
def test_planted_slowdowns_are_found(slower: float, wander: float) -> None:
    assert rate("fail", 0.02, slower=slower, wander=wander) >= 0.8


def test_equal_versions_pass_where_the_machine_is_quiet() -> None:
    assert rate("pass", 0.05, wander=0.005) >= 0.95


@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_what_is_told_as_detectable_is_found_in_four_of_five(repeats: int) -> None:
    """With the true error in the place of an estimate, and one cell."""
    wander, margin = 0.03, 0.05
    error = 2 * (wander**2 + 0.02**2 / 30) / repeats
    truth = CrossedMean(0.0, error, repeats - 1.0, repeats, 30, 0.0)
    worse = detectable(truth, float(np.log1p(margin)), 0.05, 1)
    assert worse is not None
    rules = GateRules((MarginRule("tpot_s", margin),))
    failed = 0
    for seed in range(COMPARISONS):
        chance = np.random.default_rng([5, seed])
        base = timed_run("BASE", wandering(chance, repeats, wander=wander))
        slow = wandering(chance, repeats, wander=wander, slower=float(np.expm1(worse)))
        failed += compare_runs(base, timed_run("NEW", slow), rules).verdict == "fail"
    assert 0.68 <= failed / COMPARISONS <= 0.97


def test_one_changed_answer_of_two_hundred_is_found() -> None:
    base = timed_run("BASE", wandering(np.random.default_rng(1), 3, requests=200, wander=0.001))
    rules = GateRules((MarginRule("consistency", 0.01),))
    assert compare_runs(base, base, rules).verdict == "pass"
    answers = np.array(base.trials[1].answers)
    answers[77] += 1
    trials = [base.trials[0], dataclasses.replace(base.trials[1], answers=answers), base.trials[2]]
    decision = compare_runs(base, ReducedRun("NEW", trials), rules)
    assert decision.verdict == "fail"
    (row,) = decision.rows
    assert row.note == "lossless, yet 1 of 600 answers are not BASE's, first r77 of repeat 1"
