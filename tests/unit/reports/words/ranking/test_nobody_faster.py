"""Where nobody is faster on average: what the best one came to, and who is faster under a load."""

from __future__ import annotations

import pytest

from harness.core.nouns import Slo
from reports.cells import Cell
from reports.variants import NamedOptions, Variant, variants
from reports.words.ranking.headline import headline
from tests.support.results.made_effects import made_effects

VLLM, FAST, SWIFT, LOST = variants(
    [
        NamedOptions("vllm", {}, "official code", True),
        NamedOptions("fast", {}, "re-implementation", False),
        NamedOptions("swift", {}, "simulation", False),
        NamedOptions("lost", {}, "re-implementation", False),
    ]
)


def under(
    variant: Variant, concurrency: int, speedup: float, *, valid: bool = True, same: float = 1.0,
    wide: float = 0.02,
) -> Cell:  # fmt: skip
    """A cell with an interval of `wide` to either side."""
    ends = speedup - wide, speedup + wide
    numbers = {"speedup": speedup, "speedup_low": ends[0], "speedup_high": ends[1]}
    void = [] if valid else ["speedup"]
    return Cell(
        variant=variant, workload="gsm8k", load=f"closed c={concurrency}", load_kind="closed",
        load_value=concurrency, order=concurrency, keys=(), slo=Slo(), trials=3, failed=0,
        valid_trials=3, effects={"speedup": made_effects(speedup, *ends, "gsm8k")},
        metrics={
            **numbers, "consistency_ratio": same, "noise_floor": 1.0, "repeats": 3, "spread": {},
            "void_metrics": void,
        },
    )  # fmt: skip


BOTH = " on average over both pairs of workload and load"


def test_a_load_under_which_one_is_faster_is_not_hidden_behind_the_average() -> None:
    found = headline([under(FAST, 1, 1.6), under(FAST, 8, 0.6)], [VLLM, FAST], "")
    assert found == (
        f"fast was not clearly faster than vllm{BOTH}: 0.98× [0.96, 1.00] (0.60× [0.58, 0.62] "
        "under closed c=8 to 1.60× [1.58, 1.62] under closed c=1)."
    )


@pytest.mark.parametrize(("speedup", "told"), [(1.09, False), (1.2, True)])
def test_one_interval_above_1_of_many_that_are_looked_at_is_no_faster_load(
    speedup: float, told: bool
) -> None:
    """Of forty at 95% one lies above 1 by chance: [1.01, 1.17] does, and at 99.7% it holds 1."""
    cells = [under(FAST, n, 0.9) for n in range(1, 9)]
    cells += [under(SWIFT, n, 0.8) for n in range(2, 9)]
    found = headline([*cells, under(SWIFT, 1, speedup, wide=0.08)], [VLLM, FAST, SWIFT], "")
    assert ("swift was faster under closed c=1" in found) == told


def test_that_all_were_slower_is_said_with_the_best_number() -> None:
    cells = [under(FAST, 1, 0.5), under(SWIFT, 1, 0.52), under(LOST, 1, 9.0, valid=False)]
    assert headline(cells[:2], [VLLM, FAST, SWIFT], "") == (
        "No backend was clearly faster than vllm, and all were slower; the best was swift "
        "(simulation): 0.52× [0.50, 0.54]."
    )
    assert ", and all 2 that are valid were slower; " in headline(
        cells, [VLLM, FAST, SWIFT, LOST], ""
    )
    assert headline(cells[:1], [VLLM, FAST], "") == (
        "fast was not clearly faster than vllm, but slower: 0.50× [0.48, 0.52]."
    )
    assert headline([cells[0], under(SWIFT, 1, 0.99)], [VLLM, FAST, SWIFT], "") == (
        "No backend was clearly faster than vllm; the best was swift (simulation): 0.99× "
        "[0.97, 1.01]."
    )


def test_another_that_is_faster_under_a_load_is_named() -> None:
    cells = [
        *(under(FAST, 1, 0.9), under(FAST, 8, 0.9)),
        *(under(SWIFT, 1, 2.0), under(SWIFT, 8, 0.3)),
    ]
    assert headline(cells, [VLLM, FAST, SWIFT], "") == (
        f"No backend was clearly faster than vllm{BOTH}, and all were slower; the best was fast "
        "(re-implementation): 0.90× [0.88, 0.92]. swift was faster under closed c=1: 2.00× "
        "[1.98, 2.02]."
    )


COST = "and no task score says what that costs."


def test_who_gives_other_answers_is_not_the_best_and_not_named_without_their_price() -> None:
    own, other = under(FAST, 1, 0.9), under(SWIFT, 1, 0.99, same=0.05)
    assert headline([own, other], [VLLM, FAST, SWIFT], "") == (
        "No backend was clearly faster than vllm; the best whose answers are as good was fast "
        "(re-implementation): 0.90× [0.88, 0.92]."
    )
    alone = headline([other], [VLLM, SWIFT], "")
    assert alone.startswith("swift was not clearly faster than vllm: 0.99× [0.97, 1.01]. It came ")
    assert alone.endswith(COST)
    nobody = headline([under(FAST, 1, 0.9, same=0.05), other], [VLLM, FAST, SWIFT], "")
    assert "; the best was swift (simulation): 0.99× [0.97, 1.01]. It came with " in nobody
    assert nobody.endswith(COST)


def test_who_is_faster_under_a_load_with_other_answers_is_named_with_their_price() -> None:
    cells = [
        *(under(FAST, 1, 0.9), under(FAST, 8, 0.9)),
        *(under(SWIFT, 1, 2.0, same=0.05), under(SWIFT, 8, 0.3, same=0.05)),
    ]
    found = headline(cells, [VLLM, FAST, SWIFT], "")
    assert "swift was faster under closed c=1: 2.00× [1.98, 2.02]. It came with " in found
    assert found.endswith(COST)


def test_each_that_is_faster_under_a_load_is_named_and_none_that_is_only_higher() -> None:
    """Overlapping intervals make no span over loads, and still one lies above 1."""
    cells = [
        *(under(FAST, 1, 1.1, wide=0.05), under(FAST, 8, 1.0, wide=0.3)),
        *(under(SWIFT, 1, 0.3), under(SWIFT, 8, 2.0)),
        *(under(LOST, 1, 1.6, wide=0.9), under(LOST, 8, 0.3)),
    ]
    found = headline(cells, [VLLM, FAST, SWIFT, LOST], "")
    assert "; the best was fast (re-implementation): 1.05× [" in found
    assert found.endswith(
        "]. fast was faster under closed c=1: 1.10× [1.05, 1.15]. swift was faster under closed "
        "c=8: 2.00× [1.98, 2.02]."
    )


def test_an_end_that_noise_may_have_made_has_its_interval() -> None:
    found = headline([under(FAST, 1, 1.6, wide=0.9), under(FAST, 8, 0.6)], [VLLM, FAST], "")
    assert found.endswith(
        "(0.60× [0.58, 0.62] under closed c=8 to 1.60× [0.70, 2.50] under closed c=1)."
    )
