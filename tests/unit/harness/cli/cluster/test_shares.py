"""Which node gets which comparisons, and what it need not run."""

from __future__ import annotations

from dataclasses import replace

from harness.cli.cluster.shares import NodeShares, comparisons, kept
from harness.core.nouns import Load, Trial
from tests.support.harness.sessions import make_trial

CELLS, REPEATS = 10, 2


def trials() -> list[Trial]:
    """Two engines in each of ten cells, twice."""
    return [
        replace(make_trial(repeat=repeat, itl_s=itl), load=Load("closed", concurrency=cell + 1))
        for repeat in range(REPEATS)
        for cell in range(CELLS)
        for itl in (0.1, 0.2)
    ]


def key(trial: Trial) -> str:
    return trial.key("machine")


def test_a_comparison_has_all_engines_and_repeats() -> None:
    found = comparisons(trials())
    assert len(found) == CELLS
    for number, one in enumerate(found):
        assert {trial.load.concurrency for trial in one} == {number + 1}
        assert {(t.options["itl_s"], t.repeat) for t in one} == {
            *((itl, repeat) for itl in (0.1, 0.2) for repeat in range(REPEATS))
        }


def test_shares_are_large_first_and_single_at_the_end() -> None:
    shares = NodeShares(comparisons(trials()), nodes=2)
    sizes = []
    while shares:
        sizes.append(len(shares.take(lambda one: 0)))
    assert sizes == [3, 2, 2, 1, 1, 1]


def test_a_node_goes_on_with_what_it_has_begun() -> None:
    found = comparisons(trials())
    shares = NodeShares(found, nodes=5)
    assert shares.take(lambda one: 3 if one is found[7] else 0) == [found[7]]
    assert shares.take(lambda one: 0) == [found[0]]


def test_what_a_lost_node_had_is_the_next_one_s() -> None:
    found = comparisons(trials())
    shares = NodeShares(found, nodes=5)
    lost = shares.take(lambda one: 0)
    shares.give_back(lost)
    assert shares.take(lambda one: 0)[: len(lost)] == lost
    left = []
    while shares:
        left += shares.take(lambda one: 0)
    assert len(left) == CELLS - 2, "a larger share each, for there is one node less"


def test_only_repeats_that_are_whole_are_kept() -> None:
    one = comparisons(trials())[0]
    first = {key(trial) for trial in one if trial.repeat == 0}
    second = [key(trial) for trial in one if trial.repeat == 1]
    every = {*first, *second}
    assert kept([one], {*first, second[0]}, (), key) == first
    assert kept([one], every, (), key) == every
    assert kept([one], set(), (), key) == set()
    assert kept([one], {*first, second[0]}, second, key) == {*first, second[0]}, "others failed"
    assert kept([one], {second[0]}, second[:-1], key) == set(), "others never ran"
